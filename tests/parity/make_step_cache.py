#!/usr/bin/env python3
"""python tests/parity/make_step_cache.py: runs the pipelines of make_pipeline.py, make_mochi_pipeline.py and make_wan_pipeline.py with diffusers' first-block
cache. Writes step_cache_cases.json, with the steps that were reused, and step_cache_golden.safetensors, with the latents after every step, into data,
data/mochi and data/wan. Needs torch, diffusers, transformers, ftfy, sentencepiece, safetensors."""
import json

import torch
from diffusers import CogVideoXPipeline, MochiPipeline, WanPipeline
from diffusers.hooks import FirstBlockCacheConfig, apply_first_block_cache
from diffusers.hooks.first_block_cache import FBCHeadBlockHook
from safetensors.torch import save_file

from make_pipeline import DATA, NEGATIVE, PROMPT

COMMON = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "seed": 7, "num_inference_steps": 12, "max_sequence_length": 16, "width": 32, "height": 32, "num_frames": 5}
# {folder: (class of the pipeline, {case: its options in addition to COMMON})}. If guidance passes run one after the other, diffusers decides for each pass alone, but our
# program decides once for all passes. main() refuses a threshold close to the change of a step, because rounding would decide about that step.
FAMILIES = {
    "": (CogVideoXPipeline, {"text_along": {"cache": 0.85}, "no_guidance": {"cache": 0.7, "guidance_scale": 1.0}}),
    "mochi/": (MochiPipeline, {"no_guidance": {"cache": 0.45, "guidance_scale": 1.0, "num_frames": 7}, "no_prompt": {"cache": 0.75, "guidance_scale": 1.0, "num_frames": 7, "prompt": ""}}),
    "wan/": (WanPipeline, {"no_guidance": {"cache": 0.23, "guidance_scale": 1.0}, "two_experts": {"cache": 0.25, "guidance_scale": 1.0, "folder": "pipeline_two_experts"}}),
}


def watched():
    """Makes diffusers' cache record its decisions in order. Returns the list of (relative change, whether the step is computed)."""
    decisions, decide = [], FBCHeadBlockHook._should_compute_remaining_blocks

    def tell(hook, residual):
        before = hook.state_manager.get_state().head_block_residual
        change = None if before is None else ((residual - before).abs().mean() / before.abs().mean()).item()
        decisions.append((change, decide(hook, residual)))
        return decisions[-1][1]

    FBCHeadBlockHook._should_compute_remaining_blocks = tell
    return decisions


def run(pipeline, options, decisions):
    arguments = {**COMMON, **options}
    threshold, seed = arguments.pop("cache"), arguments.pop("seed")
    arguments.pop("folder", None)
    for role in ("transformer", "transformer_2"):
        if getattr(pipeline, role, None) is not None:
            apply_first_block_cache(getattr(pipeline, role), FirstBlockCacheConfig(threshold=threshold))
    decisions.clear()
    latents = []

    def keep(_pipeline, _step, _time, tensors):
        latents.append(tensors["latents"].clone())
        return {}

    pipeline(**arguments, output_type="latent", generator=torch.Generator().manual_seed(seed), callback_on_step_end=keep)
    for change, _ in decisions:
        assert change is None or abs(change - threshold) > 0.01 * threshold, f"a change of {change} is too near {threshold}"
    return torch.cat(latents)


def main():
    torch.set_num_threads(1)
    decisions = watched()
    for folder, (kind, cases) in FAMILIES.items():
        golden, contents = {}, {}
        for name, options in cases.items():
            pipeline = kind.from_pretrained(DATA / folder / options.get("folder", "pipeline"), torch_dtype=torch.float32)
            pipeline.set_progress_bar_config(disable=True)
            golden[name] = run(pipeline, options, decisions).float().contiguous()
            reused = [step for step, (_, computed) in enumerate(decisions) if not computed]
            contents[name] = {**COMMON, **options, "reused": reused}
            print(name, reused, [None if change is None else round(change, 3) for change, _ in decisions], f"std {golden[name][-1].std():.3f}")
        (DATA / folder / "step_cache_cases.json").write_text(json.dumps(contents, indent=1) + "\n")
        save_file(golden, DATA / folder / "step_cache_golden.safetensors")


if __name__ == "__main__":
    main()
