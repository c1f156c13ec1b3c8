#!/usr/bin/env python3
"""python tests/parity/make_wan_vae.py: writes into data/wan
  vae_<config>/                                            config.json and random weights, with the encoder's in a file of their own
  vae_golden.safetensors, vae_cases.json                   the output of diffusers' Wan VAE for random latents, normalized as in its pipeline
  vae_encoder_golden.safetensors, vae_encoder_cases.json   its output for frames
  vae_names.json                                           names and shapes of the published sizes
Needs torch, diffusers, safetensors."""
import json
import shutil

import torch
from diffusers import AutoencoderKLWan
from safetensors.torch import save_file

from make_vae import DATA, frames_of, names_of, save_encoder_cases, save_weights

FOLDER = DATA / "wan"
RESIDUAL = dict(is_residual=True, patch_size=2, in_channels=12, out_channels=12, scale_factor_spatial=16)
# Configs like those of Wan 2.1 and 2.2, and one of each kind with other multiples of widths: fewer levels, whose widths grow or shrink.
CONFIGS = {
    "plain": dict(base_dim=3, z_dim=4, num_res_blocks=1),
    "residual": dict(base_dim=2, decoder_base_dim=3, z_dim=5, num_res_blocks=1, **RESIDUAL),
    "plain_other": dict(base_dim=4, z_dim=3, dim_mult=[2, 3, 1], temperal_downsample=[True, False], scale_factor_spatial=4, scale_factor_temporal=2),
    "residual_other": dict(base_dim=4, z_dim=3, dim_mult=[1, 4, 2], temperal_downsample=[True, False], num_res_blocks=1, is_residual=True, scale_factor_spatial=4,
                           scale_factor_temporal=2),
}
# {name: (config, frames, height and width of the latents, whether tiled)}. Tiles are 32 latents wide and begin every 24; tiles of "residual" are 16 wide, every 12.
CASES = {
    "one_frame": ("plain", 1, 4, 6, False),
    "four_frames": ("plain", 4, 5, 3, False),
    "five_frames": ("plain", 5, 3, 4, False),
    "nine_frames": ("plain", 9, 2, 3, False),
    "tiled": ("plain", 1, 33, 25, True),
    "tiled_one_axis": ("plain", 2, 3, 34, True),
    "residual_one_frame": ("residual", 1, 2, 3, False),
    "residual_four_frames": ("residual", 4, 1, 3, False),
    "residual_five_frames": ("residual", 5, 2, 1, False),
    "residual_nine_frames": ("residual", 9, 1, 1, False),
    "residual_tiled": ("residual", 2, 17, 2, True),
    "residual_tiled_both_axes": ("residual", 1, 13, 17, True),
    "plain_other": ("plain_other", 4, 5, 7, False),
    "residual_other": ("residual_other", 4, 5, 7, False),
}
# {name: (config, number of frames, height and width in latents, whether tiled)}. Tiles are 32 latents wide and begin every 24. "residual" is tiled if it has at least 17
# latents, and has two tiles from 25 latents on, the last of which may be smaller. diffusers always takes four frames at a time, whatever number a latent stands for.
ENCODER_CASES = {
    "one_frame": ("plain", 1, 3, 5, False),
    "five_frames": ("plain", 5, 5, 3, False),
    "nine_frames": ("plain", 9, 3, 2, False),
    "seventeen_frames": ("plain", 17, 1, 3, False),
    "tiled": ("plain", 1, 26, 33, True),
    "tiled_one_axis": ("plain", 5, 35, 1, True),
    "residual_one_frame": ("residual", 1, 3, 2, False),
    "residual_five_frames": ("residual", 5, 1, 3, False),
    "residual_nine_frames": ("residual", 9, 1, 2, False),
    "residual_seventeen_frames": ("residual", 17, 1, 1, False),
    "residual_tiled": ("residual", 5, 1, 26, True),
    "residual_one_tile": ("residual", 1, 19, 1, True),
    "plain_other": ("plain_other", 9, 5, 7, False),
    "residual_other": ("residual_other", 9, 7, 5, False),
}
PUBLISHED = {
    "2.1": dict(),
    "2.2 5b": dict(base_dim=160, decoder_base_dim=256, z_dim=48, latents_mean=[0.0] * 48, latents_std=[1.0] * 48, **RESIDUAL),
}


def randomize(module, generator):
    """Sets every parameter to random values, so that each of them changes the output. The last convolution is so small that most colors stay in -1..1."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith(("gamma", "bias")):
                parameter.copy_((1.0 if name.endswith("gamma") else 0.0) + 0.3 * noise)
            else:
                parameter.copy_(noise * (0.4 if name.startswith("decoder.conv_out") else 1.0) / parameter[0].numel() ** 0.5)
    return module.half().eval()


def save_vae(name, config, generator):
    folder = FOLDER / f"vae_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    statistics = {key: [round(value, 4) for value in torch.rand(config["z_dim"], generator=generator).add(offset).tolist()]
                  for key, offset in (("latents_mean", -0.5), ("latents_std", 0.5))}
    vae = randomize(AutoencoderKLWan(**config, **statistics), generator)
    vae.save_config(folder)
    save_weights(vae, folder, "encoder.conv_in.bias")
    return vae.float()


def denormalized(latents, config):
    """Returns denormalized latents, as the pipeline decodes them."""
    mean, std = (torch.tensor(values).view(1, -1, 1, 1, 1) for values in (config.latents_mean, config.latents_std))
    return latents / (1.0 / std) + mean


def encode(vaes):
    golden = {}
    for name, (config, frames, height, width, tiled) in ENCODER_CASES.items():
        vae = vaes[config]
        vae.use_tiling = tiled
        scale, times = vae.config.scale_factor_spatial, vae.config.scale_factor_temporal
        video = frames_of(frames, height * scale, width * scale)
        mean, std = (torch.tensor(values).view(1, -1, 1, 1, 1) for values in (vae.config.latents_mean, vae.config.latents_std))
        latents = (vae.encode(video).latent_dist.mode() - mean) * (1.0 / std)
        expected = (1, vae.config.z_dim, (frames - 1) // times + 1, height, width)
        assert latents.shape == expected, f"{name}: diffusers' latents are {tuple(latents.shape)}, not {expected}"
        golden |= {name: video, f"{name}.mean": latents.contiguous()}
        print(f"{name:26} {expected} to {latents.abs().max():.3f}")
    save_encoder_cases(FOLDER, ENCODER_CASES, golden)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    vaes = {name: save_vae(name, config, generator) for name, config in CONFIGS.items()}
    golden = {}
    for name, (config, frames, height, width, tiled) in CASES.items():
        vae = vaes[config]
        vae.use_tiling = tiled
        latents = torch.randn(1, vae.config.z_dim, frames, height, width, generator=generator).half().float()
        decoded = vae.decode(denormalized(latents, vae.config)).sample
        scale, times = vae.config.scale_factor_spatial, vae.config.scale_factor_temporal
        assert decoded.shape == (1, 3, times * (frames - 1) + 1, scale * height, scale * width), f"{name}: {tuple(decoded.shape)}"
        golden[f"{name}.latents"] = latents
        golden[f"{name}.frames"] = decoded[..., ::3, ::3].contiguous()  # keeps every third pixel, an odd step, so that even and odd pixels are compared
        clamped = (decoded.abs() == 1).float().mean()
        print(f"{name:24} {tuple(decoded.shape)} std {decoded.std():.3f}, {clamped:.1%} clamped")
        assert clamped < 0.2, "few colors may be beyond their limits"
    assert any((golden[f"{name}.frames"].abs() == 1).any() for name in CASES), "some colors must be beyond their limits"
    save_file(golden, FOLDER / "vae_golden.safetensors")
    cases = {name: {"vae": f"vae_{config}", "tiled": tiled} for name, (config, _, _, _, tiled) in CASES.items()}
    (FOLDER / "vae_cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    encode(vaes)
    names = {name: names_of(AutoencoderKLWan, **config) for name, config in PUBLISHED.items()}
    (FOLDER / "vae_names.json").write_text(json.dumps(names, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
