"""Imports Open-Sora-Plan's own model code. The first argument of the importing script is the path of a checkout of PKU-YuanGroup/Open-Sora-Plan at commit
294993ca (version 1.2.0). Needs what that version needs (diffusers 0.28, transformers 4.40, huggingface_hub 0.23, einops, numpy 1), but nothing that only
training and evaluation use."""
import importlib
import pathlib
import sys
import types
from unittest import mock

import diffusers
import torch
import transformers.utils  # must come before the stand-ins below, because it looks for the modules that they replace

assert diffusers.__version__.startswith("0.28"), f"diffusers is {diffusers.__version__}, not 0.28, with which the reference was published"
diffusers.utils.import_utils._peft_available = False  # otherwise diffusers would import an installed peft, which may be made for another version
CODE = pathlib.Path(sys.argv[1]).resolve()
assert (CODE / "opensora/models/diffusion/opensora/modeling_opensora.py").is_file(), f"{CODE} is no checkout of Open-Sora-Plan 1.2.0"

for unused in ("CogVideoXPipeline", "CogVideoXTransformer3DModel", "AutoencoderKLCogVideoX", "CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"):
    setattr(diffusers, unused, None)  # parity scripts import these names, which diffusers 0.28 lacks
for unused in ("decord", "pytorchvideo", "pytorchvideo.transforms", "torchvision", "torchvision.io", "torchvision.transforms", "torchvision.transforms._transforms_video",
               "pytorch_lightning", "opensora.models.causalvideovae.eval.cal_psnr", "opensora.models.causalvideovae.utils", "opensora.models.causalvideovae.utils.utils",
               "opensora.models.causalvideovae.model.utils.utils", "opensora.models.causalvideovae.utils.video_utils"):
    sys.modules[unused] = mock.MagicMock()
for package in ("", ".models", ".models.diffusion", ".models.diffusion.opensora", ".models.causalvideovae", ".models.causalvideovae.model",
                ".models.causalvideovae.model.causal_vae", ".models.causalvideovae.eval", ".utils", ".sample"):  # stand-ins for these packages, whose __init__ would import everything
    module = types.ModuleType("opensora" + package)
    module.__path__ = [str(CODE / ("opensora" + package).replace(".", "/"))]
    sys.modules[module.__name__] = module
utilities = types.ModuleType("opensora.utils.utils")
utilities.to_2tuple = lambda value: tuple(value) if isinstance(value, (list, tuple)) else (value, value)
sys.modules[utilities.__name__] = utilities

OpenSoraT2V = importlib.import_module("opensora.models.diffusion.opensora.modeling_opensora").OpenSoraT2V
CausalVAEModel = importlib.import_module("opensora.models.causalvideovae.model.causal_vae.modeling_causalvae").CausalVAEModel
OpenSoraPipeline = importlib.import_module("opensora.sample.pipeline_opensora").OpenSoraPipeline


def plain(config):
    """Returns a model's config as its config.json holds it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in config.items() if not key.startswith("_")}


def in_tiles(vae, spatial=True):
    """Makes the VAE decode in tiles, as the authors' scripts do: chunks of 8 latent frames, and tiles of 64 x 64 latents. If `spatial` is false, a frame of any size is a
    single tile."""
    tile_scale = 2 ** sum(map(bool, vae.config.decoder_spatial_upsample))
    vae.enable_tiling()
    vae.tile_overlap_factor, vae.tile_sample_min_size_t, vae.tile_latent_min_size_t = 0.125, 29, 8
    vae.tile_latent_min_size = 64 if spatial else 1 << 20
    vae.tile_sample_min_size = vae.tile_latent_min_size * tile_scale
    return vae


torch.set_num_threads(1)
