#!/usr/bin/env python3
"""python tests/parity/make_mochi_vae.py: writes into data/mochi
  vae_<config>/                            config.json and random weights
  vae_golden.safetensors, vae_cases.json   the output of diffusers' Mochi VAE for random latents, normalized as in its pipeline
  vae_names.json                           names and shapes of the published size
Needs torch, diffusers, safetensors."""
import json
import shutil

import torch
from diffusers import AutoencoderKLMochi
from safetensors.torch import save_file

from make_vae import DATA, names_of, randomize

FOLDER = DATA / "mochi"
# "small" is the published config with smaller widths and depth. Widths are multiples of 32, because norms always have 32 groups. "other" has another number of levels, and
# no mean and deviation of latents.
CONFIGS = {
    "small": dict(latent_channels=4, decoder_block_out_channels=[32, 32, 32, 32], layers_per_block=[1, 0, 1, 1, 1]),
    "other": dict(latent_channels=3, decoder_block_out_channels=[32, 64], layers_per_block=[1, 0, 1], temporal_expansions=[3], spatial_expansions=[4]),
}
WITHOUT_STATISTICS = "other"
# {name: (config, frames, height and width of the latents, whether tiled)}. Tiles are 32 latents wide and begin every 24; tiles of "other" are 64 wide and begin every 48.
CASES = {
    "one_frame": ("small", 1, 4, 6, False),
    "two_frames": ("small", 2, 3, 5, False),
    "five_frames": ("small", 5, 3, 2, False),
    "one_pixel": ("small", 3, 1, 1, False),
    "tiled": ("small", 1, 25, 33, True),
    "tiled_one_axis": ("small", 3, 2, 34, True),
    "other": ("other", 4, 5, 3, False),
    "other_tiled": ("other", 1, 3, 65, True),
}


def save_vae(name, config, generator):
    """Writes the VAE. Leaves out the encoder, which no test uses, except for one tensor, which loading the decoder must ignore."""
    folder = FOLDER / f"vae_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    channels = config["latent_channels"]
    statistics = {key: [round(value, 4) for value in torch.rand(channels, generator=generator).add(offset).tolist()]
                  for key, offset in (("latents_mean", -0.5), ("latents_std", 0.5))}
    if name == WITHOUT_STATISTICS:
        statistics = dict.fromkeys(statistics)
    encoder = dict(encoder_block_out_channels=[32] * len(config["decoder_block_out_channels"]), add_attention_block=[False] * len(config["layers_per_block"]))
    vae = randomize(AutoencoderKLMochi(**config, **encoder, **statistics), generator)
    vae.save_config(folder)
    tensors = {key: tensor.contiguous() for key, tensor in vae.state_dict().items() if not key.startswith("encoder.") or key == "encoder.proj_in.bias"}
    save_file(tensors, folder / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    return vae.float()


def denormalized(latents, config):
    """Returns denormalized latents, as the pipeline decodes them."""
    if config.latents_mean is None:
        return latents / config.scaling_factor
    mean, std = (torch.tensor(values).view(1, -1, 1, 1, 1) for values in (config.latents_mean, config.latents_std))
    return latents * std / config.scaling_factor + mean


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    vaes = {name: save_vae(name, config, generator) for name, config in CONFIGS.items()}
    golden = {}
    for name, (config, frames, height, width, tiled) in CASES.items():
        vae = vaes[config]
        vae.use_tiling = tiled
        latents = torch.randn(1, vae.config.latent_channels, frames, height, width, generator=generator).half().float()
        decoded = vae.decode(denormalized(latents, vae.config)).sample
        scale, times = vae.spatial_compression_ratio, vae.temporal_compression_ratio
        assert decoded.shape == (1, 3, times * (frames - 1) + 1, scale * height, scale * width), f"{name}: {tuple(decoded.shape)}"
        golden[f"{name}.latents"] = latents
        golden[f"{name}.frames"] = decoded[..., ::3, ::3].contiguous()  # keeps every third pixel, an odd step, so that even and odd pixels are compared
        print(f"{name:16} {tuple(decoded.shape)} std {decoded.std():.3f} scale {decoded.abs().max():.3f}")
    save_file(golden, FOLDER / "vae_golden.safetensors")
    cases = {name: {"vae": f"vae_{config}", "tiled": tiled} for name, (config, _, _, _, tiled) in CASES.items()}
    (FOLDER / "vae_cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    (FOLDER / "vae_encoder_cases.json").write_text("{}\n")  # this VAE has no encoder
    (FOLDER / "vae_names.json").write_text(json.dumps({"1 preview": names_of(AutoencoderKLMochi)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
