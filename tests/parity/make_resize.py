#!/usr/bin/env python3
"""python tests/parity/make_resize.py: writes data/resize_golden.safetensors: a picture of random pixels, resized by Pillow and by transformers'
CLIPImageProcessor to other sizes. Needs numpy, pillow, safetensors, torch, transformers 5."""
import pathlib

import numpy
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

DATA = pathlib.Path(__file__).parent / "data"
SIZES = ((8, 8), (20, 30), (23, 31), (40, 37), (5, 60), (23, 7), (1, 1))  # (height, width) of the results


def tensor(image):
    return torch.from_numpy(numpy.array(image)).half()  # fp16 holds 0 to 255 exactly


if __name__ == "__main__":
    image = Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (23, 31, 3), dtype=numpy.uint8))
    golden = {"image": tensor(image)}
    for height, width in SIZES:
        name = f"{height}x{width}"
        golden[f"lanczos.stretch.{name}"] = tensor(image.resize((width, height), Image.Resampling.LANCZOS))
        golden[f"lanczos.cover.{name}"] = tensor(ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS))
        golden[f"bicubic.stretch.{name}"] = tensor(image.resize((width, height), Image.Resampling.BICUBIC))
    for side in (14, 32):
        square = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side}, do_normalize=False, do_rescale=False)
        for name, turned in (("wide", image), ("high", image.transpose(Image.Transpose.TRANSPOSE))):
            golden[f"square.{name}.{side}"] = square(turned, return_tensors="pt")["pixel_values"].half()
    save_file({name: value.contiguous() for name, value in golden.items()}, DATA / "resize_golden.safetensors")
