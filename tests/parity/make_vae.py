#!/usr/bin/env python3
"""python tests/parity/make_vae.py: writes into data
  vae_<config>/                                            config.json and random weights, with the encoder's in a file of their own
  vae_golden.safetensors, vae_cases.json                   the output of diffusers' CogVideoX VAE for random latents
  vae_encoder_golden.safetensors, vae_encoder_cases.json   its output for frames
  vae_names.json                                           names and shapes of CogVideoX-2b's VAE
Needs torch, diffusers, safetensors."""
import json
import pathlib
import shutil

import torch
from diffusers import AutoencoderKLCogVideoX
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"

# Configs with one and two layers per block. Different widths need shortcut convolutions, and widths that are no multiple of a vector register test the remaining channels.
CONFIGS = {
    "small": dict(block_out_channels=(8, 8, 12, 8), layers_per_block=1, latent_channels=4, norm_num_groups=4, sample_height=96, sample_width=80),
    "deep": dict(block_out_channels=(4, 6, 8), layers_per_block=2, latent_channels=3, norm_num_groups=2, sample_height=64, sample_width=64, use_post_quant_conv=True,
                 use_quant_conv=True, temporal_compression_ratio=2, down_block_types=("CogVideoXDownBlock3D",) * 3, up_block_types=("CogVideoXUpBlock3D",) * 3),
}
# {name: (config, frames, height and width of the latents, whether tiled)}. Tiles of "small" are 6 x 5 latents and begin every 5 x 4. The last tiles may be smaller.
CASES = {
    "one_frame": ("small", 1, 4, 6, False),
    "two_frames": ("small", 2, 5, 3, False),
    "three_frames": ("small", 3, 3, 4, False),
    "five_frames": ("small", 5, 4, 3, False),
    "six_frames": ("small", 6, 2, 3, False),
    "tiled": ("small", 3, 13, 9, True),
    "tiled_one_axis": ("small", 2, 4, 11, True),
    "deep_three_frames": ("deep", 3, 5, 4, False),
    "deep_four_frames": ("deep", 4, 3, 6, False),
}
# {name: (config, number of frames, height and width in latents, whether tiled)}. The encoder takes batches of eight frames; the first batch also has the remaining frames.
ENCODER_CASES = {
    "one_frame": ("small", 1, 3, 5, False),
    "five_frames": ("small", 5, 5, 3, False),
    "nine_frames": ("small", 9, 3, 2, False),
    "seventeen_frames": ("small", 17, 1, 3, False),
    "twenty_nine_frames": ("small", 29, 1, 1, False),
    "tiled": ("small", 1, 13, 9, True),
    "tiled_one_axis": ("small", 5, 7, 2, True),
    "deep_one_frame": ("deep", 1, 3, 5, False),
    "deep_three_frames": ("deep", 3, 5, 4, False),
    "deep_seventeen_frames": ("deep", 17, 3, 2, False),
}


def randomize(module, generator):
    """Sets every parameter to random values, so that each of them changes the output, also norms and biases."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * (1.0 / (parameter[0].numel() ** 0.5)))
            else:
                parameter.copy_((1.0 if name.endswith("weight") else 0.0) + 0.3 * noise)
    return module.half().eval()


def save_vae(name, config, generator):
    folder = DATA / f"vae_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    vae = randomize(AutoencoderKLCogVideoX(**config), generator)
    vae.save_config(folder)
    save_weights(vae, folder, "encoder.conv_in.conv.bias")
    return vae.float()


def save_weights(vae, folder, left):
    """Writes the decoder's and the encoder's weights to two files. The encoder's tensor `left` is in the decoder's file, where loading the decoder must ignore it."""
    tensors = {key: tensor.contiguous() for key, tensor in vae.state_dict().items()}
    of_encoder = {key for key in tensors if key.startswith("encoder.") and key != left}
    save_file({key: tensor for key, tensor in tensors.items() if key not in of_encoder}, folder / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    save_file({key: tensor for key, tensor in tensors.items() if key in of_encoder}, folder / "encoder.safetensors", metadata={"format": "pt"})


def names_of(autoencoder, **config):
    """Returns the config and the tensors' names and shapes of a published VAE."""
    with torch.device("meta"):
        vae = autoencoder(**config)
    config = {key: value for key, value in vae.config.items() if not key.startswith("_")}
    return {"config": config, "rest": {name: list(tensor.shape) for name, tensor in vae.state_dict().items()}}


def frames_of(count, height, width):
    """Returns made-up frames. The tests compute the same frames, so they are not stored."""
    index = torch.arange(3 * count * height * width)
    return ((index * index * 31 + index * 7919) % 251).float().div(125).sub(1).view(1, 3, count, height, width)


def save_encoder_cases(folder, cases, golden):
    """Writes the encoder's golden file and its list of cases. `golden` also holds the frames of each case by its name; only their shapes are written."""
    save_file({key: tensor for key, tensor in golden.items() if key not in cases}, folder / "vae_encoder_golden.safetensors")
    listed = {name: {"vae": f"vae_{config}", "frames": list(golden[name].shape), "tiled": tiled} for name, (config, _, _, _, tiled) in cases.items()}
    (folder / "vae_encoder_cases.json").write_text(json.dumps(listed) + "\n")


def encode(vaes):
    golden = {}
    for name, (config, frames, height, width, tiled) in ENCODER_CASES.items():
        vae = vaes[config]
        vae.enable_tiling() if tiled else vae.disable_tiling()
        video = frames_of(frames, height * vae_scale(vae), width * vae_scale(vae))
        posterior = vae.encode(video).latent_dist
        expected = (1, vae.config.latent_channels, (frames - 1) // int(vae.config.temporal_compression_ratio) + 1, height, width)
        assert posterior.mean.shape == expected, f"{name}: diffusers' latents are {tuple(posterior.mean.shape)}, not {expected}"
        golden |= {name: video, f"{name}.mean": posterior.mean.contiguous(), f"{name}.deviation": posterior.std}
        print(f"{name:24} {expected} mean to {posterior.mean.abs().max():.3f}, deviation to {posterior.std.max():.3f}")
    save_encoder_cases(DATA, ENCODER_CASES, golden)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    vaes = {name: save_vae(name, config, generator) for name, config in CONFIGS.items()}
    golden = {}
    for name, (config, frames, height, width, tiled) in CASES.items():
        vae = vaes[config]
        vae.enable_tiling() if tiled else vae.disable_tiling()
        latents = torch.randn(1, vae.config.latent_channels, frames, height, width, generator=generator).half().float()
        decoded = vae.decode(latents).sample
        expected = (height * vae_scale(vae), width * vae_scale(vae))
        assert decoded.shape[-2:] == expected, f"{name}: diffusers' tiles give {tuple(decoded.shape[-2:])}, not {expected}"
        golden[f"{name}.latents"] = latents
        golden[f"{name}.frames"] = decoded[..., ::3, ::3].contiguous()  # keeps every third pixel, an odd step, so that even and odd pixels are compared
        print(name, tuple(decoded.shape), f"scale {decoded.abs().max():.3f}")
    save_file(golden, DATA / "vae_golden.safetensors")
    cases = {name: {"vae": f"vae_{config}", "tiled": tiled} for name, (config, _, _, _, tiled) in CASES.items()}
    (DATA / "vae_cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    encode(vaes)
    (DATA / "vae_names.json").write_text(json.dumps({"2b": names_of(AutoencoderKLCogVideoX)}, separators=(",", ":")) + "\n")


def vae_scale(vae):
    return 2 ** (len(vae.config.block_out_channels) - 1)


if __name__ == "__main__":
    main()
