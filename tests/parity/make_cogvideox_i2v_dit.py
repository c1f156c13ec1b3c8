#!/usr/bin/env python3
"""python tests/parity/make_cogvideox_i2v_dit.py: writes data/cogvideox_i2v/dit_golden.safetensors and dit_cases.json (small random transformers of CogVideoX's image to
video, their inputs and diffusers' outputs) and dit_names.json (names and shapes of the published ones). Needs torch, diffusers, safetensors."""
import json
import pathlib

import torch
from diffusers import CogVideoXTransformer3DModel
from make_dit import FIVE_B, ROTARY, errors, generator_of, in_fp8, names_of, randomise, rotary_of
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data" / "cogvideox_i2v"
OFS = 2.0  # what the pipeline gives to every forward
LEARNED = dict(ROTARY, in_channels=8, use_learned_positional_embeddings=True)
DEPTH = dict(ROTARY, in_channels=8, patch_size_t=2, sample_width=20, sample_height=20, ofs_embed_dim=12, patch_bias=False)
# name: (config, latents [frames, height, width], text tokens, timesteps of the batch)
CASES = {
    "learned": (LEARNED, (3, 8, 12), 7, [901, 17]),
    "learned_unguided": (dict(LEARNED, num_attention_heads=1, attention_head_dim=32), (3, 8, 12), 7, [640]),
    "ofs": (DEPTH, (4, 8, 12), 6, [77, 400]),
    "ofs_odd": (dict(DEPTH, num_attention_heads=1, attention_head_dim=32), (2, 10, 6), 7, [999, 3]),
    "ofs_sines_first": (dict(DEPTH, flip_sin_to_cos=False, freq_shift=1, num_layers=1), (6, 6, 14), 7, [250]),
}
PUBLISHED = {
    "5b-i2v": dict(FIVE_B, in_channels=32, out_channels=16, use_learned_positional_embeddings=True),
    "1.5-5b-i2v": dict(FIVE_B, in_channels=32, out_channels=16, patch_size_t=2, ofs_embed_dim=512, sample_width=300, sample_height=300, sample_frames=81, patch_bias=False),
}


def make_case(name, golden):
    config, (frames, height, width), text_tokens, timesteps = CASES[name]
    model = CogVideoXTransformer3DModel(**config).eval()
    weights = randomise(model, golden)
    generator = generator_of(name)
    latents = torch.randn(len(timesteps), frames, config["in_channels"], height, width, generator=generator)
    text = torch.randn(len(timesteps), text_tokens, config["text_embed_dim"], generator=generator)
    times, rotary = torch.tensor(timesteps), rotary_of(model, latents)

    def output_of(module, dtype=torch.float32):
        ofs = torch.full((1,), OFS, dtype=dtype) if "ofs_embed_dim" in config else None
        return module(latents.to(dtype), text.to(dtype), times, ofs=ofs, image_rotary_emb=rotary, return_dict=False)[0].float()

    output = output_of(model)
    reduced, saved = in_fp8(model)
    fp8 = output_of(reduced)
    half = output_of(model.bfloat16(), torch.bfloat16)
    golden |= {f"{name}/latents": latents, f"{name}/text": text, f"{name}/timesteps": times, f"{name}/output": output, f"{name}/bf16_output": half.half(),
               f"{name}/fp8_output": fp8.half()}
    print(f"{name:28} output {tuple(output.shape)} std {output.std():.3f}, {errors(output, bf16=half, fp8=fp8)}")
    return {"config": dict(model.config), "weights": weights, "fp8_saves": saved}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    golden = {}
    cases = {name: make_case(name, golden) for name in CASES}
    save_file({key: value.contiguous() for key, value in golden.items()}, DATA / "dit_golden.safetensors")
    (DATA / "dit_cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    names = {name: names_of(config) for name, config in PUBLISHED.items()}
    (DATA / "dit_names.json").write_text(json.dumps(names, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
