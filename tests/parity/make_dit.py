#!/usr/bin/env python3
"""python tests/parity/make_dit.py: writes into data
  dit_golden.safetensors, dit_cases.json   small random CogVideoX transformers, their inputs and diffusers' outputs
  dit_names.json                           names and shapes of the published sizes
Needs torch, diffusers, safetensors."""
import copy
import json
import pathlib
import re
import zlib

import torch
from diffusers import CogVideoXPipeline, CogVideoXTransformer3DModel
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"
SMALL = dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=12, text_embed_dim=10, num_layers=2, sample_width=12,
             sample_height=8, sample_frames=9, patch_size=2, temporal_compression_ratio=4, max_text_seq_length=7)
ROTARY = dict(SMALL, use_rotary_positional_embeddings=True)
# {name: (config, frames, height and width of the latents, number of text tokens, timesteps of the batch entries)}
CASES = {
    "sincos": (SMALL, (3, 8, 12), 7, [901, 17]),
    "sincos_other_size": (dict(SMALL, flip_sin_to_cos=False, freq_shift=1, spatial_interpolation_scale=1.5, temporal_interpolation_scale=2.0), (2, 12, 6), 7, [500, 500]),
    "rotary": (dict(ROTARY, num_attention_heads=1, attention_head_dim=32), (3, 8, 12), 5, [999, 3]),
    "rotary_tall": (dict(ROTARY, num_attention_heads=3, num_layers=1), (2, 14, 10), 7, [250, 750]),
    "rotary_wide": (dict(ROTARY, num_attention_heads=1, attention_head_dim=64, num_layers=1, attention_bias=False), (4, 6, 20), 3, [640]),
    "rotary_learned": (dict(ROTARY, use_learned_positional_embeddings=True), (3, 8, 12), 7, [120, 990]),
    "rotary_learned_other_frames": (dict(ROTARY, use_learned_positional_embeddings=True), (2, 8, 12), 7, [120, 990]),
    "depth": (dict(ROTARY, patch_size_t=2, sample_width=20, sample_height=20), (4, 8, 12), 6, [77, 400]),
    "plain_norms": (dict(ROTARY, norm_elementwise_affine=False, patch_bias=False, norm_eps=1e-3), (3, 8, 12), 7, [33, 66]),
}
FIVE_B = dict(num_attention_heads=48, num_layers=42, use_rotary_positional_embeddings=True)
PUBLISHED = {
    "2b": dict(num_attention_heads=30, num_layers=30),
    "5b": FIVE_B,
    "1.5-5b": dict(FIVE_B, patch_size_t=2, sample_width=300, sample_height=300, sample_frames=81, patch_bias=False),
    "5b with learned positions": dict(FIVE_B, use_learned_positional_embeddings=True),
}


def generator_of(text):
    return torch.Generator().manual_seed(zlib.crc32(text.encode()))


def randomize(model, golden):
    """Sets every parameter and learned table to random values, so that each of them changes the output, also norms and biases. The values are fp16 numbers that depend
    only on the tensor's name and shape. The models of all cases share them in the golden file. Returns {name of the tensor: key in the file}."""
    keys = {}
    for name, value in model.state_dict().items():
        keys[name] = name + "".join(f".{size}" for size in value.shape)
        noise = torch.randn(value.shape, generator=generator_of(keys[name]))
        if value.ndim > 1:
            noise *= 0.5 if name.endswith("pos_embedding") else 0.8 / value[0].numel() ** 0.5
        else:
            noise = 0.3 * noise + (1.0 if name.endswith("weight") else 0.0)
        golden[keys[name]] = noise.half()
        value.copy_(golden[keys[name]])
    return keys


def e4m3_rows(x):
    """Rounds each row to e4m3 with a scale that maps the row's largest value to the largest e4m3 number, 448. Returns the rounded values. Multiplies by the reciprocal of
    the scale, as our code does: a 16-bit weight may lie halfway between two e4m3 numbers, and then the last bit of the product decides."""
    scale = x.abs().amax(-1, keepdim=True) * (1 / 448)
    return (x * scale.reciprocal()).to(torch.float8_e4m3fn).float() * scale


def in_fp8(model):
    """Returns a copy of the model that emulates --weights fp8 with products in fp32, and the bytes that 8 bits save against fp32. It rounds the weights (with a scale per
    output) and the inputs (with a scale per token) of attention and feed-forward in its blocks, if their sizes are multiples of 16."""
    model, saved = copy.deepcopy(model), 0
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and re.search(r"blocks\.\d+\.(attn\d?|ff\w*)\.", name) and all(size % 16 == 0 for size in layer.weight.shape):
            layer.weight.copy_(e4m3_rows(layer.weight))
            layer.register_forward_pre_hook(lambda layer, inputs: (e4m3_rows(inputs[0]),))
            saved += 3 * layer.weight.numel() - 4 * layer.weight.shape[0]
    return model, saved


def rotary_of(model, latents):
    """Returns the rotary tables that diffusers' pipeline computes for latents of this size, or None if the model uses none."""
    if not model.config.use_rotary_positional_embeddings:
        return None
    owner = type("Owner", (), {"transformer": model, "vae_scale_factor_spatial": 8})()
    return CogVideoXPipeline._prepare_rotary_positional_embeddings(owner, latents.shape[3] * 8, latents.shape[4] * 8, latents.shape[1], torch.device("cpu"))


def errors(output, **others):
    return ", ".join(f"{name} off by {(other - output).abs().max() / output.abs().max():.1e} of the scale" for name, other in others.items())


def make_case(name, case, golden, more=lambda dtype: {}):
    """Runs a case with diffusers and adds its tensors to `golden`. more(dtype) returns further arguments of the forward. Returns the case's entry in dit_cases.json."""
    config, (frames, height, width), text_tokens, timesteps = case
    model = CogVideoXTransformer3DModel(**config).eval()
    weights = randomize(model, golden)
    generator = generator_of(name)
    latents = torch.randn(len(timesteps), frames, config["in_channels"], height, width, generator=generator)
    text = torch.randn(len(timesteps), text_tokens, config["text_embed_dim"], generator=generator)
    times, rotary = torch.tensor(timesteps), rotary_of(model, latents)

    def output_of(module, dtype=torch.float32):
        return module(latents.to(dtype), text.to(dtype), times, **more(dtype), image_rotary_emb=rotary, return_dict=False)[0].float()

    output = output_of(model)
    reduced, saved = in_fp8(model)
    fp8 = output_of(reduced)
    half = output_of(model.bfloat16(), torch.bfloat16)
    golden |= {f"{name}/latents": latents, f"{name}/text": text, f"{name}/timesteps": times, f"{name}/output": output, f"{name}/bf16_output": half.half(),
               f"{name}/fp8_output": fp8.half()}
    print(f"{name:28} output {tuple(output.shape)} std {output.std():.3f}, {errors(output, bf16=half, fp8=fp8)}")
    return {"config": dict(model.config), "weights": weights, "fp8_saves": saved}


def names_of(config):
    """Returns the config and the tensors' names and shapes of a model. Of its blocks, which all have the same shapes, the result holds only one."""
    with torch.device("meta"):
        model = CogVideoXTransformer3DModel(**config)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    blocks = [{name.split(".", 2)[2]: shape for name, shape in shapes.items() if name.startswith(f"transformer_blocks.{i}.")} for i in range(config["num_layers"])]
    assert all(block == blocks[0] for block in blocks)
    rest = {name: shape for name, shape in shapes.items() if not name.startswith("transformer_blocks.")}
    return {"config": dict(model.config), "block": blocks[0], "rest": rest}


def write(folder, golden, cases, names):
    save_file({key: value.contiguous() for key, value in golden.items()}, folder / "dit_golden.safetensors")
    for file, content in (("dit_cases.json", cases), ("dit_names.json", names)):
        (folder / file).write_text(json.dumps(content, separators=(",", ":")) + "\n")


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    golden = {}
    cases = {name: make_case(name, case, golden) for name, case in CASES.items()}
    write(DATA, golden, cases, {name: names_of(config) for name, config in PUBLISHED.items()})


if __name__ == "__main__":
    main()
