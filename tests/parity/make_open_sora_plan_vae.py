#!/usr/bin/env python3
"""python tests/parity/make_open_sora_plan_vae.py CHECKOUT: writes into data/open_sora_plan
  vae_<config>/                            config.json and random weights
  vae_golden.safetensors, vae_cases.json   the output of the authors' own VAE for random latents
  vae_names.json                           names and shapes of the published size
Needs torch, safetensors, and what open_sora_plan.py needs."""
import json
import shutil

import torch
from safetensors.torch import save_file

from open_sora_plan import CausalVAEModel, in_tiles, plain  # must come first, because make_vae imports diffusers
from make_vae import DATA, randomize

FOLDER = DATA / "open_sora_plan"
# The published VAE's layers, which up- and downsample space and time at once (docs/Report-v1.2.0.md). Their names are those in
# examples/opensoraplan1.2/model_opensoraplan1_2.json of the same repository at commit 38776805.
LAYERS = dict(decoder_attention="AttnBlock3DFix", encoder_attention="AttnBlock3DFix", encoder_conv_in="Conv2d",
              encoder_resnet_blocks=["ResnetBlock2D", "ResnetBlock2D", "ResnetBlock3D", "ResnetBlock3D"],
              encoder_spatial_downsample=["Downsample", "Spatial2xTime2x3DDownsample", "Spatial2xTime2x3DDownsample", ""], encoder_temporal_downsample=[""] * 4,
              decoder_spatial_upsample=["", "SpatialUpsample2x", "Spatial2xTime2x3DUpsample", "Spatial2xTime2x3DUpsample"], decoder_temporal_upsample=[""] * 4)
# "small" is the published config with smaller widths and depth. Widths are multiples of 32, because norms always have 32 groups. "other" has another number of levels.
CONFIGS = {
    "small": dict(LAYERS, hidden_size=32, hidden_size_mult=[1, 1, 1, 1], num_res_blocks=0),
    "other": dict(hidden_size=32, z_channels=3, embed_dim=3, hidden_size_mult=[2, 1], num_res_blocks=0, use_quant_layer=False, decoder_attention="AttnBlock3DFix",
                  encoder_attention="AttnBlock3DFix", encoder_resnet_blocks=["ResnetBlock3D"] * 2, encoder_spatial_downsample=["SpatialDownsample2x", ""],
                  encoder_temporal_downsample=["TimeDownsample2x", ""], decoder_resnet_blocks=["ResnetBlock3D"] * 2, decoder_spatial_upsample=["", "SpatialUpsample2x"],
                  decoder_temporal_upsample=["", "TimeUpsample2x"]),
}
# {name: (config, frames, height and width of the latents, whether tiled)}. In each config, tiles are 64 latents wide and begin every 56; chunks have 8 latent frames and
# begin every 7.
CASES = {
    "one_frame": ("small", 1, 4, 6, False),
    "two_frames": ("small", 2, 3, 5, False),
    "five_frames": ("small", 5, 3, 2, False),
    "one_chunk": ("small", 8, 1, 2, False),
    "two_chunks": ("small", 9, 2, 1, False),
    "whole_chunks": ("small", 15, 1, 1, False),
    "tiled": ("small", 1, 66, 2, True),
    "other": ("other", 4, 5, 3, False),
    "other_chunks": ("other", 16, 2, 3, False),
    "other_tiled": ("other", 10, 2, 65, True),
}


def save_vae(name, config, generator):
    """Writes the VAE. Leaves out the encoder, which no test uses, except for one tensor, which loading the decoder must ignore."""
    folder = FOLDER / f"vae_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    vae = randomize(CausalVAEModel(**config), generator)
    vae.save_config(folder)
    tensors = {key: tensor.contiguous() for key, tensor in vae.state_dict().items() if not key.startswith(("encoder.", "quant_conv.")) or key == "encoder.norm_out.bias"}
    save_file(tensors, folder / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    return vae.float()


def names_of(config):
    with torch.device("meta"):
        vae = CausalVAEModel(**config)
    return {"config": plain(vae.config) | {"_class_name": "CausalVAEModel"}, "rest": {name: list(value.shape) for name, value in vae.state_dict().items()}}


@torch.no_grad()
def main():
    generator = torch.Generator().manual_seed(0)
    vaes = {name: save_vae(name, config, generator) for name, config in CONFIGS.items()}
    golden = {}
    for name, (config, frames, height, width, tiled) in CASES.items():
        vae = in_tiles(vaes[config], spatial=tiled)
        latents = torch.randn(1, vae.config.embed_dim, frames, height, width, generator=generator).half().float()
        decoded = vae.decode(latents)
        scale, times = (8, 4) if config == "small" else (2, 2)
        assert decoded.shape == (1, 3, times * (frames - 1) + 1, scale * height, scale * width), f"{name}: {tuple(decoded.shape)}"
        golden[f"{name}.latents"] = latents
        golden[f"{name}.frames"] = decoded[..., ::3, ::3].contiguous()  # keeps every third pixel, an odd step, so that even and odd pixels are compared
        print(f"{name:16} {tuple(decoded.shape)} std {decoded.std():.3f} scale {decoded.abs().max():.3f}")
    save_file(golden, FOLDER / "vae_golden.safetensors")
    cases = {name: {"vae": f"vae_{config}", "tiled": tiled} for name, (config, _, _, _, tiled) in CASES.items()}
    (FOLDER / "vae_cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    (FOLDER / "vae_encoder_cases.json").write_text("{}\n")  # no test encodes with this VAE
    (FOLDER / "vae_names.json").write_text(json.dumps({"1.2.0": names_of(LAYERS)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
