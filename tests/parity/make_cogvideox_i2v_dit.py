#!/usr/bin/env python3
"""python tests/parity/make_cogvideox_i2v_dit.py: writes into data/cogvideox_i2v
  dit_golden.safetensors, dit_cases.json   small random transformers of CogVideoX's image to video, their inputs and diffusers' outputs
  dit_names.json                           names and shapes of the published transformers
Needs torch, diffusers, safetensors."""
import pathlib

import torch
from make_dit import FIVE_B, ROTARY, make_case, names_of, write

DATA = pathlib.Path(__file__).parent / "data" / "cogvideox_i2v"
OFS = 2.0  # the pipeline passes this value to every forward
LEARNED = dict(ROTARY, in_channels=8, use_learned_positional_embeddings=True)
DEPTH = dict(ROTARY, in_channels=8, patch_size_t=2, sample_width=20, sample_height=20, ofs_embed_dim=12, patch_bias=False)
# {name: (config, frames, height and width of the latents, number of text tokens, timesteps of the batch entries)}
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


def with_ofs(config):
    def more(dtype):
        return {"ofs": torch.full((1,), OFS, dtype=dtype)} if "ofs_embed_dim" in config else {}
    return more


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    golden = {}
    cases = {name: make_case(name, case, golden, with_ofs(case[0])) for name, case in CASES.items()}
    write(DATA, golden, cases, {name: names_of(config) for name, config in PUBLISHED.items()})


if __name__ == "__main__":
    main()
