#!/usr/bin/env python3
"""python tests/parity/make_open_sora_plan_dit.py CHECKOUT: writes into data/open_sora_plan
  dit_golden.safetensors, dit_cases.json   small random Open-Sora-Plan transformers, their inputs and the outputs of the authors' own code
  dit_names.json                           names and shapes of the published size
Needs torch, safetensors, and what open_sora_plan.py needs."""
import copy

import torch

from open_sora_plan import OpenSoraT2V, plain  # must come first, because make_dit imports diffusers
from make_dit import DATA, errors, generator_of, in_fp8, randomize, write

COMMON = dict(patch_size_t=1, patch_size=2, norm_type="ada_norm_single", activation_fn="gelu-approximate", attention_bias=True, norm_elementwise_affine=False, norm_eps=1e-6,
              use_rope=True, attention_mode="math", interpolation_scale_t=1.0, interpolation_scale_h=1.0, interpolation_scale_w=1.0)
SMALL = dict(COMMON, num_attention_heads=2, attention_head_dim=24, num_layers=2, in_channels=4, out_channels=8, cross_attention_dim=48, caption_channels=16, sample_size=(8, 12),
             sample_size_t=3)
ONE = dict(SMALL, num_attention_heads=1, attention_head_dim=48)
# {name: (config, frames, height and width of the latents, number of tokens of each text of the batch, timesteps of the batch entries)}
CASES = {
    "plain": (SMALL, (3, 8, 12), [7, 7], [900, 17]),
    "lengths": (SMALL, (3, 8, 12), [7, 3], [896.9, 17.25]),
    "no_learned_sigma": (dict(SMALL, out_channels=4), (2, 8, 6), [1, 7], [999, 0]),
    "scales": (dict(SMALL, interpolation_scale_t=0.7, interpolation_scale_h=1.5, interpolation_scale_w=2.0), (4, 6, 10), [5, 5], [992, 3]),
    "scales_of_training": (dict(ONE, interpolation_scale_t=None, interpolation_scale_h=None, interpolation_scale_w=None, sample_size_t=24, sample_size=(90, 160)), (5, 14, 6),
                           [1, 2], [250, 752]),
    "one_frame": (dict(ONE, num_layers=3), (1, 14, 10), [7], [640]),
    "one_block": (dict(ONE, num_layers=1), (9, 6, 4), [6, 2], [1, 1000]),
    "patches": (dict(SMALL, patch_size=3, in_channels=3, out_channels=6), (4, 6, 9), [6, 6], [76, 400]),
}
PUBLISHED = dict(COMMON, num_attention_heads=24, attention_head_dim=96, num_layers=32, in_channels=4, out_channels=4, cross_attention_dim=2304, caption_channels=4096,
                 sample_size=(90, 160), sample_size_t=24, attention_mode="xformers")


def make_case(name, golden):
    config, (frames, height, width), lengths, timesteps = CASES[name]
    model = OpenSoraT2V(**config).eval()
    weights = randomize(model, golden)
    generator = generator_of(name)
    latents = torch.randn(len(timesteps), config["in_channels"], frames, height, width, generator=generator)
    text = torch.randn(len(timesteps), max(*lengths, 4), config["caption_channels"], generator=generator)
    times, mask = torch.tensor(timesteps, dtype=torch.float32), torch.arange(text.shape[1]) < torch.tensor(lengths).unsqueeze(1)

    def output_of(module, dtype=torch.float32):
        prediction = module(latents.to(dtype), times, text.to(dtype).unsqueeze(1), attention_mask=torch.ones_like(latents[:, 0]).to(dtype),
                            encoder_attention_mask=mask.long().unsqueeze(1), return_dict=False)[0]
        return prediction[:, :config["in_channels"]].float()  # drops the learned sigma, as the pipeline does

    output = output_of(model)
    reduced, saved = in_fp8(model)
    fp8 = output_of(reduced)
    bf16 = output_of(copy.deepcopy(model).bfloat16(), torch.bfloat16)
    golden |= {f"{name}/latents": latents, f"{name}/text": text, f"{name}/timesteps": times, f"{name}/output": output, f"{name}/bf16_output": bf16.half(),
               f"{name}/fp8_output": fp8.half()}
    print(f"{name:20} output {tuple(output.shape)} std {output.std():.3f}, {errors(output, bf16=bf16, fp8=fp8)}")
    return {"config": plain(model.config) | {"_class_name": "OpenSoraT2V"}, "weights": weights, "fp8_saves": saved, "text_lengths": lengths}


def names_of(config):
    """Returns the config and the tensors' names and shapes of a model. Of its blocks, which all have the same shapes, the result holds only one."""
    with torch.device("meta"):
        model = OpenSoraT2V(**config)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    blocks = [{name.split(".", 2)[2]: shape for name, shape in shapes.items() if name.startswith(f"transformer_blocks.{i}.")} for i in range(config["num_layers"])]
    assert all(block == blocks[0] for block in blocks)
    rest = {name: shape for name, shape in shapes.items() if not name.startswith("transformer_blocks.")}
    return {"config": plain(model.config) | {"_class_name": "OpenSoraT2V"}, "block": blocks[0], "rest": rest}


@torch.no_grad()
def main():
    golden = {}
    cases = {name: make_case(name, golden) for name in CASES}
    write(DATA / "open_sora_plan", golden, cases, {"1.2.0": names_of(PUBLISHED)})


if __name__ == "__main__":
    main()
