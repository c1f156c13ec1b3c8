#!/usr/bin/env python3
"""python tests/parity/make_keyframes.py: writes data/keyframes_golden.safetensors: pictures as diffusers' MiniMax-H3 fits them to a video as its first and its last
frame, and latents with its noise. Needs torch, diffusers (0.42.1 or newer), pillow, safetensors."""
import pathlib

import torch
from diffusers import MiniMaxH3Scheduler
from diffusers.modular_pipelines import PipelineState
from diffusers.modular_pipelines.minimax_h3 import before_encoder
from PIL import Image
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"
CANVASES = [(16, 16), (12, 30), (31, 14)]  # (height, width) of videos
SIZES = [(21, 15), (13, 29), (16, 16)]


def picture_of(height, width):
    pixels = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(height * 100 + width), dtype=torch.uint8)
    return Image.fromarray(pixels.numpy()), pixels


def fitted(first, last, height, width):
    """Returns both pictures resized and cropped to height x width by the block of diffusers' pipeline."""
    block = before_encoder.MiniMaxH3ResizeStep()
    state = PipelineState()
    for name, value in dict(image=first, last_image=last, height=height, width=width).items():
        state.set(name, value)
    from diffusers.image_processor import VaeImageProcessor
    components = type("Components", (), {"image_processor": VaeImageProcessor(vae_scale_factor=16), "canvas_multiple": 32})()
    block(components, state)
    return state.get("keyframes")


def as_tensor(picture):
    return torch.tensor(list(picture.tobytes()), dtype=torch.uint8).view(picture.height, picture.width, 3)


@torch.no_grad()
def main():
    golden = {}
    for size in SIZES:
        golden[f"picture.{size[0]}x{size[1]}"] = picture_of(*size)[1]
    for height, width in CANVASES:
        for size in SIZES:
            picture = picture_of(*size)[0]
            first, last = fitted(picture, picture, height, width)
            name = f"{size[0]}x{size[1]}.{height}x{width}"
            golden |= {f"first.{name}": as_tensor(first), f"last.{name}": as_tensor(last)}
    generator = torch.Generator().manual_seed(3)
    latents = torch.randn(1, 3, 1, 4, 6, generator=torch.Generator().manual_seed(1))
    noised = [MiniMaxH3Scheduler(12.0).scale_noise(latents, 0.999, torch.randn(latents.shape, generator=generator)) for _ in range(2)]
    golden |= {"latents": latents, "noised": torch.cat(noised)}
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "keyframes_golden.safetensors")
    print(len(golden), sum(value.numel() * value.element_size() for value in golden.values()))


if __name__ == "__main__":
    main()
