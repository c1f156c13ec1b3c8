#!/usr/bin/env python3
"""python tests/parity/make_qwen3_vision.py: writes data/qwen3_vision (a small random Qwen3-VL with its vision model, in fp16) and data/qwen3_vision_golden.safetensors:
pictures, their patches, what the vision model makes of them, positions, and the hidden states of a text with two pictures. Needs torch, transformers 5, safetensors."""
import json
import pathlib
import shutil

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

DATA = pathlib.Path(__file__).parent / "data"
LAYERS, USED = 5, 4  # the output is the state after USED of LAYERS layers. Features of deeper vision layers are added after each of the first 3
START, END, IMAGE = 60, 61, 62
PROCESSOR = dict(size=dict(shortest_edge=256, longest_edge=1024), patch_size=4, temporal_patch_size=2, merge_size=2, image_mean=[0.5, 0.4, 0.3], image_std=[0.5, 0.6, 0.7])
# {name: (height, width)}. The processor keeps the first size, rounds the second to whole squares, enlarges the third and shrinks the fourth.
SIZES = {"kept": (16, 24), "rounded": (21, 27), "enlarged": (9, 5), "shrunk": (50, 70)}


def small_model():
    config = Qwen3VLConfig(
        text_config=dict(vocab_size=64, hidden_size=32, intermediate_size=24, num_hidden_layers=LAYERS, num_attention_heads=2, num_key_value_heads=1, head_dim=16, rms_norm_eps=1e-6,
                         rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_section=[4, 2, 2], mrope_interleaved=True)),
        vision_config=dict(depth=4, hidden_size=16, intermediate_size=24, num_heads=2, out_hidden_size=32, patch_size=4, spatial_merge_size=2, temporal_patch_size=2,
                           num_position_embeddings=25, deepstack_visual_indexes=[0, 1, 3]),
        vision_start_token_id=START, vision_end_token_id=END, image_token_id=IMAGE, video_token_id=63, tie_word_embeddings=False)
    model = Qwen3VLForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                noise = 0.2 * noise + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
            elif "embed" not in name or "proj" in name:
                noise *= 1.5 * parameter[0].numel() ** -0.5
            parameter.copy_(noise.half())
    return model


def picture_of(name):
    """Returns a smooth picture with some noise, so that errors of resizing and of positions change the result."""
    height, width = SIZES[name]
    generator = torch.Generator().manual_seed(height * 100 + width)
    coarse = torch.rand(1, 3, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)
    pixels = (0.8 * smooth + 0.2 * torch.rand(1, 3, height, width, generator=generator))[0].mul(255).round().byte()
    return Image.fromarray(pixels.permute(1, 2, 0).numpy())


def text_with(grids, generator):
    """Returns the ids [1, L] of a text with two pictures, and the types of these tokens (text or picture)."""
    ids, kinds = [], []

    def add(more, kind=0):
        ids.extend(more)
        kinds.extend([kind] * len(more))

    for _, rows, columns in grids.tolist():
        add(torch.randint(0, 60, (3,), generator=generator).tolist() + [START])
        add([IMAGE] * (rows * columns // 4), 1)
        add([END])
    add(torch.randint(0, 60, (6,), generator=generator).tolist())
    return torch.tensor([ids]), torch.tensor([kinds])


@torch.no_grad()
def main():
    folder = DATA / "qwen3_vision"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = small_model()
    config = json.loads(model.config.to_json_string(use_diff=False))
    text = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps", "attention_bias", "rope_parameters", "model_type")
    vision = ("depth", "hidden_size", "intermediate_size", "num_heads", "hidden_act", "in_channels", "patch_size", "spatial_merge_size", "temporal_patch_size", "out_hidden_size", "num_position_embeddings", "deepstack_visual_indexes")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_vl", "vision_start_token_id": START, "vision_end_token_id": END, "image_token_id": IMAGE,
        "text_config": {key: config["text_config"][key] for key in text}, "vision_config": {key: config["vision_config"][key] for key in vision}}, indent=2) + "\n")
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")
    save_file({name: tensor.half() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}, folder / "model.safetensors")
    processor = Qwen2VLImageProcessorPil(**PROCESSOR)
    golden = {}
    for name in SIZES:
        picture = picture_of(name)
        made = processor(images=[picture], return_tensors="pt")
        golden |= {f"{name}.picture": torch.tensor(list(picture.tobytes()), dtype=torch.uint8).view(picture.height, picture.width, 3),
                   f"{name}.pixels": made["pixel_values"], f"{name}.grid": made["image_grid_thw"][0]}
        if name in ("kept", "shrunk"):
            seen = model.model.visual(made["pixel_values"], made["image_grid_thw"])
            golden |= {f"{name}.tokens": seen.pooler_output} | {f"{name}.layer{i}": each for i, each in enumerate(seen.deepstack_features)}
    two = processor(images=[picture_of("kept"), picture_of("shrunk")], return_tensors="pt")
    ids, kinds = text_with(two["image_grid_thw"], torch.Generator().manual_seed(5))
    positions, _ = model.model.get_rope_index(ids, kinds, two["image_grid_thw"])
    states = model.model(input_ids=ids, mm_token_type_ids=kinds, attention_mask=torch.ones_like(ids), output_hidden_states=True, **two).hidden_states
    golden |= {"ids": ids, "positions": positions[:, 0].float(), "hidden": states[USED]}
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "qwen3_vision_golden.safetensors")
    print({key: tuple(value.shape) for key, value in golden.items()}, float(golden["hidden"].std()), float(golden["kept.tokens"].std()), len(states))


if __name__ == "__main__":
    main()
