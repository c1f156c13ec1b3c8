#!/usr/bin/env python3
"""python tests/parity/make_open_sora_plan_runs.py CHECKOUT: runs the pipeline of make_open_sora_plan_pipeline.py with the authors' own code, once with LoRAs
added and once with a first-block cache. Writes lora/, lora_cases.json, lora_golden.safetensors, step_cache_cases.json and step_cache_golden.safetensors into
data/open_sora_plan. Neither diffusers nor peft can load a LoRA into this model or cache its steps, so this script does both as they do. Needs what that
script needs."""
import json
import shutil

import torch
from diffusers import EulerAncestralDiscreteScheduler
from safetensors.torch import load_file, save_file
from transformers import MT5EncoderModel, T5Tokenizer

from open_sora_plan import CausalVAEModel, OpenSoraPipeline, OpenSoraT2V, in_tiles  # must come first, because make_pipeline imports diffusers
from make_open_sora_plan_pipeline import FOLDER, PLAN, WORDS, Vae
from make_pipeline import NEGATIVE, PROMPT

COMMON = {"prompt": PROMPT, "seed": 7, "max_sequence_length": 256, "width": 64, "height": 64, "num_frames": 5}
LORA_COMMON = {**COMMON, "num_inference_steps": 2, "guidance_scale": 1.0, "folder": "pipeline"}
LORAS = {"lora_metadata": [("metadata", 1.0)], "lora_two": [("metadata", 0.8), ("plain", -0.5)]}
CACHE_COMMON = {**COMMON, "negative_prompt": NEGATIVE, "num_inference_steps": 12, "width": 32, "height": 32}
# Thresholds of the cache. run_cached() refuses a threshold close to the change of a step, because rounding would decide about that step.
CACHES = {"no_guidance": {"cache": 0.25, "guidance_scale": 1.0}, "passes_together": {"cache": 0.25, "guidance_scale": 7.5}}
WIDTH = 48  # width of the transformer


def part(kind, name):
    config = {key: value for key, value in json.loads((FOLDER / name / "config.json").read_text()).items() if not key.startswith("_")}
    model = kind(**config)
    missing = model.load_state_dict({key: tensor.float() for key, tensor in load_file(FOLDER / name / "diffusion_pytorch_model.safetensors").items()}, strict=False).missing_keys
    assert all(key.startswith(("encoder.", "quant_conv.", "loss.")) for key in missing), missing
    return model.float().eval()


def saved_pipeline():
    pipeline = OpenSoraPipeline(tokenizer=T5Tokenizer.from_pretrained(FOLDER / "tokenizer", legacy=True), text_encoder=MT5EncoderModel.from_pretrained(FOLDER / "text_encoder").float(),
                                vae=Vae(in_tiles(part(CausalVAEModel, "vae"))), transformer=part(OpenSoraT2V, "transformer"), scheduler=EulerAncestralDiscreteScheduler())
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@torch.no_grad()
def latents_of(pipeline, options, callback=None):
    arguments = {key: value for key, value in options.items() if key not in ("folder", "cache")}
    generator = torch.Generator().manual_seed(arguments.pop("seed"))
    prompt, negative = arguments.pop("prompt"), arguments.pop("negative_prompt", WORDS[1])
    return pipeline(WORDS[0].format(prompt), negative_prompt=negative, **arguments, generator=generator, output_type="latent", callback=callback).images


def lora_files(folder):
    generator = torch.Generator().manual_seed(4)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def tensors(layers, rank):
        made = {}
        for name, (out, into) in layers.items():
            for matrix, shape in (("A", (rank, into)), ("B", (out, rank))):
                made[f"transformer.transformer_blocks.{name}.lora_{matrix}.weight"] = (torch.randn(shape, generator=generator) * 0.3).half()
        return made
    square, wide = (WIDTH, WIDTH), 4 * WIDTH
    layers = {"0.attn1.to_q": square, "1.attn1.to_k": square, "0.attn1.to_v": square, "1.attn1.to_out.0": square, "0.attn2.to_q": square, "0.attn2.to_k": square, "1.attn2.to_out.0": square,
              "0.ff.net.0.proj": (wide, WIDTH), "1.ff.net.2": (WIDTH, wide)}
    metadata = {"transformer.r": 4, "transformer.lora_alpha": 6, "transformer.target_modules": sorted({name.split(".", 1)[1] for name in layers})}
    save_file(tensors(layers, 4), folder / "metadata.safetensors", metadata={"lora_adapter_metadata": json.dumps(metadata)})
    save_file(tensors({"1.attn1.to_q": square, "1.attn2.to_v": square}, 2), folder / "plain.safetensors")  # without alpha, so the rank is the alpha


def add_lora(transformer, file, scale):
    """Adds scale * alpha / rank * B A to each weight for which the file holds matrices A and B."""
    tensors = load_file(file)
    for name in [key for key in tensors if key.endswith("lora_A.weight")]:
        layer = transformer.get_submodule(name[len("transformer."):-len(".lora_A.weight")])
        layer.weight.data += scale * (6 / 4 if file.stem == "metadata" else 1) * tensors[name.replace("lora_A", "lora_B")].float() @ tensors[name].float()


def make_loras():
    lora_files(PLAN / "lora")
    golden, cases = {}, {}
    for name, loras in LORAS.items():
        pipeline = saved_pipeline()
        for file, scale in loras:
            add_lora(pipeline.transformer, PLAN / "lora" / f"{file}.safetensors", scale)
        golden[f"{name}.latents"] = latents_of(pipeline, LORA_COMMON)
        cases[name] = {**LORA_COMMON, "lora": ",".join(f"lora/{file}.safetensors:{scale}" for file, scale in loras)}
        print(name, f"std {golden[f'{name}.latents'].std():.3f}")
    (PLAN / "lora_cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    save_file({key: value.float().contiguous() for key, value in golden.items()}, PLAN / "lora_golden.safetensors")


class FirstBlock(torch.nn.Module):
    """Wraps the first block as diffusers' first-block cache does. It decides if the other blocks run: they run if the residual of the first block has changed by more than
    the threshold since they last ran."""
    def __init__(self, block, threshold):
        super().__init__()
        self.block, self.threshold, self.residual, self.rest, self.decisions = block, threshold, None, None, []

    def forward(self, x, *arguments, **options):
        self.out = self.block(x, *arguments, **options)
        residual = self.out - x
        change = None if self.residual is None else ((residual - self.residual).abs().mean() / self.residual.abs().mean()).item()
        assert change is None or abs(change - self.threshold) > 0.01 * self.threshold, f"a change of {change} is too near {self.threshold}"
        self.computes = change is None or change > self.threshold
        self.decisions.append((change, self.computes))
        if self.computes:
            self.residual = residual
        return self.out if self.computes else self.out + self.rest


class LaterBlock(torch.nn.Module):
    def __init__(self, block, first, is_last):
        super().__init__()
        self.block, self.first, self.is_last = block, [first], is_last  # `first` is in a list, so that torch does not register it as a child of this module

    def forward(self, x, *arguments, **options):
        first, = self.first
        if not first.computes:
            return x
        x = self.block(x, *arguments, **options)
        if self.is_last:
            first.rest = x - first.out
        return x


def run_cached(options):
    pipeline = saved_pipeline()
    blocks = list(pipeline.transformer.transformer_blocks)
    first = FirstBlock(blocks[0], options["cache"])
    pipeline.transformer.transformer_blocks = torch.nn.ModuleList([first] + [LaterBlock(block, first, block is blocks[-1]) for block in blocks[1:]])
    latents = []
    latents_of(pipeline, options, lambda _step, _time, each: latents.append(each.clone()))
    return torch.cat(latents), first.decisions


def make_step_caches():
    golden, cases = {}, {}
    for name, options in CACHES.items():
        asked = {**CACHE_COMMON, **options}
        latents, decisions = run_cached(asked)
        golden[name] = latents.float().contiguous()
        reused = [step for step, (_, computed) in enumerate(decisions) if not computed]
        cases[name] = {**asked, "reused": reused}
        print(name, reused, [None if change is None else round(change, 3) for change, _ in decisions], f"std {latents[-1].std():.3f}")
    (PLAN / "step_cache_cases.json").write_text(json.dumps(cases, indent=1) + "\n")
    save_file(golden, PLAN / "step_cache_golden.safetensors")


if __name__ == "__main__":
    make_loras()
    make_step_caches()
