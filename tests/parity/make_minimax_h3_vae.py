#!/usr/bin/env python3
"""python tests/parity/make_minimax_h3_vae.py: writes into data/minimax_h3
  vae/                                 a small random VAE with the published strides, clips and tiles
  vae_golden.safetensors               latents and pictures, and what diffusers makes of them; of large results every STEP-th pixel
  vae_names.json                       names and shapes of the published size
Needs torch, diffusers (0.42.1 or newer), safetensors."""
import json

import torch
from diffusers import AutoencoderKLMiniMaxH3
from safetensors.torch import save_file

from make_dit import DATA, generator_of, randomize

FOLDER = DATA / "minimax_h3"
STEP = 13
SMALL = dict(latent_channels=6, block_out_channels=(8, 8, 16, 16, 12), layers_per_block=1, spatial_downsample_factors=(2, 2, 2, 2, 1), temporal_downsample_factors=(1, 2, 2, 1, 1),
             norm_num_groups=4, decoder_num_layers=2, decoder_num_attention_heads=2, decoder_attention_head_dim=16, decoder_num_register_tokens=3, decoder_ffn_mult=2,
             latents_mean=[0.1 * i for i in range(6)], latents_std=[1 + 0.2 * i for i in range(6)])
PUBLISHED = dict(block_out_channels=(128, 256, 256, 512, 512, 1024))
# {name: (frames, height, width) of the latents}. A side of more than 16 is divided into tiles.
DECODED = {"one_tile": (7, 2, 2), "one_row": (12, 2, 33), "tiles": (12, 17, 30)}
ENCODED = {"picture": (48, 32), "picture_in_tiles": (272, 448)}
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1, 1)


def picture_of(height, width):
    """Returns the same frame as frames_to_encode() in tests/support/families.h."""
    index = torch.arange(3 * height * width)
    return ((index * index * 31 + index * 7919) % 251).float().div(125).sub(1).view(1, 3, 1, height, width)


def names_of(config):
    with torch.device("meta"):
        model = AutoencoderKLMiniMaxH3(**config)
    return {"config": dict(model.config), "rest": {name: list(value.shape) for name, value in model.state_dict().items()}}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    model = AutoencoderKLMiniMaxH3(**SMALL).eval()
    values = {}
    randomize(model, values)
    for name, value in model.state_dict().items():  # a new model has zeros here, so its blocks would not change the output
        if name.endswith(("scale1", "scale2")):
            value.add_(0.5)
    (FOLDER / "vae").mkdir(parents=True, exist_ok=True)
    save_file({name: value.half().contiguous() for name, value in model.state_dict().items()}, FOLDER / "vae/diffusion_pytorch_model.safetensors")
    model.load_state_dict({name: value.half().float() for name, value in model.state_dict().items()})
    (FOLDER / "vae/config.json").write_text(json.dumps(dict(model.config), separators=(",", ":")) + "\n")
    mean, std = (torch.tensor(model.config[name]).view(1, -1, 1, 1, 1) for name in ("latents_mean", "latents_std"))
    golden = {}
    for name, shape in DECODED.items():
        latents = torch.randn(1, SMALL["latent_channels"], *shape, generator=generator_of(name)).half().float()
        frames = (model.decode(latents * std + mean).sample * DEVIATION + MEAN).clamp(0, 1) * 2 - 1
        step = 1 if name == "one_tile" else STEP
        golden |= {f"{name}/latents": latents.half(), f"{name}/frames": frames[..., ::step, ::step].half() if step > 1 else frames[:, :, ::3]}
        print(f"{name:20} frames {tuple(frames.shape)} std {frames.std():.3f}, of which at an end {((frames.abs() == 1).float().mean()):.3f}")
    for name, size in ENCODED.items():
        picture = picture_of(*size)
        latent = model.encode(((picture + 1) / 2 - MEAN) / DEVIATION).latent_dist
        golden |= {f"{name}/mean": (latent.mean - mean) / std, f"{name}/deviation": latent.std / std}
        drawn = latent.sample(generator=torch.Generator().manual_seed(42)).half().float()  # drawn as in encode_vae_condition() of the pipeline
        golden[f"{name}/drawn"] = (drawn - mean) / std
        print(f"{name:20} latents {tuple(latent.mean.shape)} std {latent.mean.std():.3f}, deviation {latent.std.mean():.3f}")
    save_file({key: value.contiguous() for key, value in golden.items()}, FOLDER / "vae_golden.safetensors")
    (FOLDER / "vae_names.json").write_text(json.dumps({"published": names_of(PUBLISHED)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
