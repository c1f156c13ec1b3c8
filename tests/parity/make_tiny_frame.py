#!/usr/bin/env python3
"""python tests/parity/make_tiny_frame.py: writes data/tiny_frame_golden.safetensors. It holds a frame, at half size, of a video that diffusers makes with the tiny
model. It also holds diffusers' results with the model's own VAE: the frame's latents, and the error of their decoding.
Needs torch, diffusers, transformers, sentencepiece, safetensors."""
import pathlib

import torch
from diffusers import CogVideoXPipeline
from safetensors.torch import save_file

from make_vae import DATA

TINY = pathlib.Path(__file__).parents[2] / "assets" / "tiny"
PROMPT = "a red circle moving to the right on a blue background"


@torch.no_grad()
def main():
    torch.set_num_threads(2)
    pipeline = CogVideoXPipeline.from_pretrained(TINY, torch_dtype=torch.float32)
    generator = torch.Generator().manual_seed(42)
    video = pipeline(PROMPT, num_frames=9, num_inference_steps=12, generator=generator, output_type="pt").frames[0]
    pixels = torch.nn.functional.avg_pool2d(video[0], 2).mul(255).round()
    frame = pixels.div(255).mul(2).sub(1)[None, :, None]
    vae = pipeline.vae.eval()
    posterior, scale = vae.encode(frame).latent_dist, vae.config.scaling_factor
    psnr = -10 * torch.log10(((vae.decode(posterior.mean).sample - frame) / 2).square().mean())
    print(f"{psnr:.2f} dB, pixels' deviation {pixels.std():.0f}")
    save_file({"pixels": pixels.permute(1, 2, 0).byte().contiguous(), "mean": posterior.mean * scale, "deviation": posterior.std * scale, "psnr": psnr[None]},
              DATA / "tiny_frame_golden.safetensors")


if __name__ == "__main__":
    main()
