#!/usr/bin/env python3
"""python tests/parity/make_minimax_h3_sound.py: writes into data/minimax_h3
  sound/                     a small random autoencoder of sound
  sound_golden.safetensors   latents, and the sound that diffusers makes of them
  sound_names.json           names and shapes of the published size
Needs torch, diffusers (0.42.1 or newer), safetensors."""
import json

import torch
from diffusers import AutoencoderKLMiniMaxH3Audio
from safetensors.torch import save_file

from make_dit import DATA, generator_of, randomize

FOLDER = DATA / "minimax_h3"
SMALL = dict(encoder_dim=4, encoder_rates=(2, 3, 5), latent_dim=20, latent_channels=5, num_attention_heads=2, decoder_dim=48, decoder_rates=(5, 3, 2), decoder_kernel_sizes=(9, 5, 4),
             resblock_kernel_sizes=(3, 7), resblock_dilation_sizes=((1, 3), (1, 5)), sampling_rate=16000, latents_mean=[0.1 * i for i in range(5)],
             latents_std=[1 + 0.2 * i for i in range(5)])


def names_of(config):
    with torch.device("meta"):
        model = AutoencoderKLMiniMaxH3Audio(**config)
    return {"config": dict(model.config), "rest": {name: list(value.shape) for name, value in model.state_dict().items()}}


def randomize_sound_vae(model):
    """Sets the parameters of a sound VAE to random values, except for the filters with which it resamples."""
    filters = {name: value.clone() for name, value in model.state_dict().items() if name.endswith("filter")}
    lengths = {name for name in model.state_dict() if name.endswith("weight_g")}
    randomize(model, {})
    for name, value in model.state_dict().items():
        if name in filters:
            value.copy_(filters[name])
        elif name in lengths:  # lengths of weights: not all equal, and in the last layer so small that samples stay in -1..1
            value.copy_((0.04 if "conv_post" in name else 0.6) * (1 + torch.rand(value.shape, generator=generator_of(name))))


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    model = AutoencoderKLMiniMaxH3Audio(**SMALL).eval()
    randomize_sound_vae(model)
    decoder = {name: value for name, value in model.state_dict().items() if name.startswith(("decoder.", "dec_in_proj.", "mean_proj."))}
    (FOLDER / "sound").mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in decoder.items()}, FOLDER / "sound/diffusion_pytorch_model.safetensors")
    (FOLDER / "sound/config.json").write_text(json.dumps(dict(model.config), separators=(",", ":")) + "\n")
    mean, std = (torch.tensor(model.config[name]).view(1, -1, 1) for name in ("latents_mean", "latents_std"))
    golden = {}
    for length in (1, 23):
        rows = torch.randn(1, 2 * length, SMALL["latent_channels"], generator=generator_of(str(length)))
        wave = model.decode(rows.view(2, length, -1).transpose(1, 2) * std + mean).sample.squeeze(1)
        golden |= {f"{length}/latents": rows, f"{length}/wave": wave}
        print(f"length {length:3} sound {tuple(wave.shape)} std {wave.std():.3f}, of which at an end {((wave.abs() == 1).float().mean()):.3f}")
    save_file({key: value.contiguous() for key, value in golden.items()}, FOLDER / "sound_golden.safetensors")
    (FOLDER / "sound_names.json").write_text(json.dumps({"published": names_of({})}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
