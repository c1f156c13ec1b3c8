#!/usr/bin/env python3
"""python tests/parity/make_mochi_dit.py: writes into data/mochi
  dit_golden.safetensors, dit_cases.json   small random Mochi transformers, their inputs and diffusers' outputs
  dit_names.json                           names and shapes of the published size
Needs torch, diffusers, safetensors."""
import copy

import torch
from diffusers import MochiTransformer3DModel

from make_dit import DATA, errors, generator_of, in_fp8, randomize, write

SMALL = dict(num_attention_heads=2, attention_head_dim=16, num_layers=2, pooled_projection_dim=24, in_channels=4, text_embed_dim=16, time_embed_dim=16)
# {name: (config, frames, height and width of the latents, number of tokens of each text of the batch, timesteps of the batch entries)}. The timesteps are bf16 numbers,
# because the pipeline rounds timesteps to bf16.
CASES = {
    "plain": (SMALL, (3, 8, 12), [7, 7], [900, 17]),
    "lengths": (SMALL, (3, 8, 12), [7, 3], [896, 17.25]),
    "no_text_beside_some": (SMALL, (3, 8, 12), [0, 5], [500, 500]),
    "no_text": (dict(SMALL, num_layers=3), (2, 8, 6), [0, 0], [0, 976]),
    "head_dims": (dict(SMALL, num_attention_heads=1, attention_head_dim=32, pooled_projection_dim=48), (4, 6, 10), [5, 5], [992, 3]),
    "odd": (dict(SMALL, num_attention_heads=3, attention_head_dim=24, pooled_projection_dim=20), (5, 14, 6), [1, 1], [250, 752]),
    "one_frame": (dict(SMALL, num_layers=3), (1, 14, 10), [7], [640]),
    "one_block": (dict(SMALL, num_layers=1), (9, 6, 4), [6, 2], [1, 1000]),
    "wide": (dict(SMALL, num_attention_heads=3, pooled_projection_dim=48), (3, 8, 12), [7, 7], [900, 17]),
    "patches": (dict(SMALL, patch_size=3, in_channels=3, out_channels=5), (4, 6, 9), [6, 6], [76, 400]),
}


def make_case(name, golden):
    config, (frames, height, width), lengths, timesteps = CASES[name]
    model = MochiTransformer3DModel(**config).eval()
    weights = randomize(model, golden)
    # The position frequencies must be bf16 numbers, too, because they are multiplied by positions of up to a hundred, which would enlarge rounding errors.
    golden[weights["pos_frequencies"]] = golden[weights["pos_frequencies"]].bfloat16().half()
    model.pos_frequencies.copy_(golden[weights["pos_frequencies"]])
    generator = generator_of(name)
    latents = torch.randn(len(timesteps), config["in_channels"], frames, height, width, generator=generator)
    text = torch.randn(len(timesteps), max(*lengths, 4), config["text_embed_dim"], generator=generator)
    times, mask = torch.tensor(timesteps), torch.arange(text.shape[1]) < torch.tensor(lengths).unsqueeze(1)
    output = model(latents, text, times, mask, return_dict=False)[0]
    reduced, saved = in_fp8(model)
    fp8 = reduced(latents, text, times, mask, return_dict=False)[0]
    half = copy.deepcopy(model).bfloat16()
    bf16 = half(latents.bfloat16(), text.bfloat16(), times.bfloat16(), mask, return_dict=False)[0].float()
    golden |= {f"{name}/latents": latents, f"{name}/text": text, f"{name}/timesteps": times, f"{name}/output": output, f"{name}/bf16_output": bf16.half(),
               f"{name}/fp8_output": fp8.half()}
    print(f"{name:20} output {tuple(output.shape)} std {output.std():.3f}, {errors(output, bf16=bf16, fp8=fp8)}")
    return {"config": dict(model.config), "weights": weights, "fp8_saves": saved, "text_lengths": lengths}


def names_of(config):
    """Returns the config and the tensors' names and shapes of a model. All blocks but the last have the same shapes, so the result holds only one of them and the last."""
    with torch.device("meta"):
        model = MochiTransformer3DModel(**config)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    alike = model.config.num_layers - 1
    blocks = [{name.split(".", 2)[2]: shape for name, shape in shapes.items() if name.startswith(f"transformer_blocks.{i}.")} for i in range(alike)]
    assert all(block == blocks[0] for block in blocks)
    rest = {name: shape for name, shape in shapes.items() if not name.startswith("transformer_blocks.") or name.startswith(f"transformer_blocks.{alike}.")}
    return {"config": dict(model.config), "blocks": alike, "block": blocks[0], "rest": rest}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    golden = {}
    cases = {name: make_case(name, golden) for name in CASES}
    write(DATA / "mochi", golden, cases, {"1 preview": names_of({})})


if __name__ == "__main__":
    main()
