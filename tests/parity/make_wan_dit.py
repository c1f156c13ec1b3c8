#!/usr/bin/env python3
"""python tests/parity/make_wan_dit.py: writes into data/wan
  dit_golden.safetensors, dit_cases.json   small random Wan transformers, their inputs and diffusers' outputs
  dit_names.json                           names and shapes of the published sizes
Needs torch, diffusers, safetensors."""
import copy

import torch
from diffusers import WanTransformer3DModel

from make_dit import DATA, errors, generator_of, in_fp8, randomize, write

SMALL = dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, text_dim=10, freq_dim=16, ffn_dim=24, num_layers=2)
# {name: (config, frames, height and width of the latents, number of text tokens, timesteps of the batch entries)}
CASES = {
    "plain": (SMALL, (3, 8, 12), 7, [901, 17]),
    "head_dims": (dict(SMALL, num_attention_heads=1, attention_head_dim=32, num_layers=1), (4, 6, 10), 5, [999, 3]),
    "many_heads": (dict(SMALL, num_attention_heads=3, attention_head_dim=24, num_layers=1), (5, 4, 6), 1, [250.5, 750.25]),
    "one_frame": (dict(SMALL, num_layers=1), (1, 14, 10), 7, [640]),
    "long": (dict(SMALL, num_layers=1), (9, 6, 4), 7, [1, 1000]),
    "without_cross_norm": (dict(SMALL, cross_attn_norm=False, eps=1e-3), (2, 8, 12), 7, [120, 990]),
    "wide": (dict(SMALL, text_dim=16, ffn_dim=48), (3, 8, 12), 7, [901, 17]),
    "patches": (dict(SMALL, patch_size=[2, 1, 4], in_channels=3, out_channels=5, num_layers=1), (4, 5, 8), 6, [77, 400]),
}
PUBLISHED = {
    "2.1 1.3b": dict(num_attention_heads=12, ffn_dim=8960, num_layers=30),
    "2.1 14b": dict(),
    "2.2 5b": dict(num_attention_heads=24, ffn_dim=14336, num_layers=30, in_channels=48, out_channels=48),
}


def in_bfloat16(model):
    """Returns a bf16 copy of the model as from_pretrained() makes it: some modules stay in fp32."""
    half = copy.deepcopy(model).bfloat16()
    for part in model._keep_in_fp32_modules or []:
        for key, module in half.named_modules():
            if part in key.split("."):
                module.float()
        for key, parameter in half.named_parameters():
            if part in key.split("."):
                parameter.data = parameter.data.float()
    return half


def make_case(name, golden):
    config, (frames, height, width), text_tokens, timesteps = CASES[name]
    model = WanTransformer3DModel(**config).eval()
    weights = randomize(model, golden)
    generator = generator_of(name)
    latents = torch.randn(len(timesteps), config["in_channels"], frames, height, width, generator=generator)
    text = torch.randn(len(timesteps), text_tokens, config["text_dim"], generator=generator)
    times = torch.tensor(timesteps)
    output = model(latents, times, text, return_dict=False)[0]
    reduced, saved = in_fp8(model)
    fp8 = reduced(latents, times, text, return_dict=False)[0]
    half = in_bfloat16(model)
    bf16 = half(latents.bfloat16(), times, text.bfloat16(), return_dict=False)[0].float()
    golden |= {f"{name}/latents": latents, f"{name}/text": text, f"{name}/timesteps": times, f"{name}/output": output, f"{name}/bf16_output": bf16.half(),
               f"{name}/fp8_output": fp8.half()}
    print(f"{name:20} output {tuple(output.shape)} std {output.std():.3f}, {errors(output, bf16=bf16, fp8=fp8)}")
    return {"config": dict(model.config), "weights": weights, "fp8_saves": saved}


def names_of(config):
    """Returns the config and the tensors' names and shapes of a model. Of its blocks, which all have the same shapes, the result holds only one."""
    with torch.device("meta"):
        model = WanTransformer3DModel(**config)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    blocks = [{name.split(".", 2)[2]: shape for name, shape in shapes.items() if name.startswith(f"blocks.{i}.")} for i in range(model.config.num_layers)]
    assert all(block == blocks[0] for block in blocks)
    return {"config": dict(model.config), "block": blocks[0], "rest": {name: shape for name, shape in shapes.items() if not name.startswith("blocks.")}}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    golden = {}
    cases = {name: make_case(name, golden) for name in CASES}
    write(DATA / "wan", golden, cases, {name: names_of(config) for name, config in PUBLISHED.items()})


if __name__ == "__main__":
    main()
