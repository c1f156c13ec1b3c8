#!/usr/bin/env python3
"""python tests/parity/make_clip.py: writes data/clip/image_encoder (a small image encoder with random weights), data/clip/image_processor, and
data/clip_golden.safetensors with transformers' results for a few pictures. Needs torch, transformers 5, safetensors, Pillow."""
import pathlib
import shutil

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModelWithProjection

DATA = pathlib.Path(__file__).parent / "data"
SIZE = 24
PICTURES = {"wide": (31, 53), "tall": (40, 27), "square": (24, 24), "small": (13, 17)}  # {name: (height, width)}


def small_tower():
    config = CLIPVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, image_size=SIZE, patch_size=6, hidden_act="gelu",
                              layer_norm_eps=1e-5, projection_dim=16)
    model = CLIPVisionModelWithProjection(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.copy_(noise * 0.2 + (1 if "norm" in name and "weight" in name else 0))
            else:
                parameter.copy_(noise * 0.5 if "position" in name else noise * parameter[0].numel() ** -0.5)
    return model


def picture(height, width, seed):
    """Returns a picture of smooth colors with some noise, so that resizing matters everywhere."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    smooth = torch.stack([x, y, (x * 9).sin() * 0.5 + 0.5], -1)
    return ((smooth + 0.3 * torch.randn(height, width, 3, generator=generator)).clamp(0, 1) * 255).round().to(torch.uint8)


def main():
    torch.set_num_threads(1)
    shutil.rmtree(DATA / "clip", ignore_errors=True)
    model = small_tower()
    model.save_pretrained(DATA / "clip" / "image_encoder")
    processor = CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    processor.save_pretrained(DATA / "clip" / "image_processor")
    golden = {}
    for seed, (name, (height, width)) in enumerate(PICTURES.items()):
        pixels = picture(height, width, seed)
        golden[f"{name}.picture"] = pixels.to(torch.float32)
        golden[f"{name}.pixels"] = processor(images=Image.fromarray(pixels.numpy()), return_tensors="pt").pixel_values
        with torch.no_grad():
            golden[f"{name}.tokens"] = model(golden[f"{name}.pixels"], output_hidden_states=True).hidden_states[-2]
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "clip_golden.safetensors")


if __name__ == "__main__":
    main()
