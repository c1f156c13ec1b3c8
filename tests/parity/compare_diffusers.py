#!/usr/bin/env python3
"""python tests/parity/compare_diffusers.py [--program build/sparsereel] [--model assets/tiny] [--steps 25] [--rounds 2]
Makes the same video with diffusers and with sparsereel in turns: same prompt, seed and steps, full attention in fp32. Prints the largest difference of a pixel, the
seconds of a denoising step and of decoding, and the ratios of medians. Needs torch, diffusers, transformers, sentencepiece, safetensors."""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from diffusers import CogVideoXPipeline
from safetensors.torch import load_file

parser = argparse.ArgumentParser()
parser.add_argument("--program", default="build/sparsereel")
parser.add_argument("--model", default="assets/tiny")
parser.add_argument("--prompt", default="a red circle moving to the right on a blue background")
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--steps", type=int, default=25)
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--threads", type=int, default=2)
arguments = parser.parse_args()
torch.set_num_threads(arguments.threads)

pipeline = CogVideoXPipeline.from_pretrained(arguments.model, torch_dtype=torch.float32)
pipeline.set_progress_bar_config(disable=True)
sequence_length = pipeline.transformer.config.max_text_seq_length


def run_diffusers():
    marks = []
    latents = pipeline(
        prompt=arguments.prompt, negative_prompt="", num_inference_steps=arguments.steps, max_sequence_length=sequence_length, output_type="latent",
        generator=torch.Generator().manual_seed(arguments.seed), callback_on_step_end=lambda *a: marks.append(time.perf_counter()) or {}).frames
    start = time.perf_counter()
    with torch.inference_mode():
        video = pipeline.decode_latents(latents)
    decode = time.perf_counter() - start
    frames = (video[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 3, 0).contiguous()
    return frames, [b - a for a, b in zip(marks, marks[1:])], decode


def run_ours(order):
    with tempfile.TemporaryDirectory() as folder:
        output, report = pathlib.Path(folder, "frames.safetensors"), pathlib.Path(folder, "report.json")
        subprocess.run([arguments.program, "generate", "-m", arguments.model, "-p", arguments.prompt, "--seed", str(arguments.seed), "--steps", str(arguments.steps), "--device", "cpu",
                        "--dtype", "fp32", "--attention", "full", "--token-order", order, "-o", output, "--report", report, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        seconds = json.loads(report.read_text())["seconds"]
        return load_file(output)["frames"], seconds["steps"], seconds["decode"]


results = {"diffusers": [], "native": [], "hilbert": []}
for _ in range(arguments.rounds):
    results["diffusers"].append(run_diffusers())
    for order in ("native", "hilbert"):
        results[order].append(run_ours(order))

reference, native, hilbert = (results[name][0][0] for name in ("diffusers", "native", "hilbert"))
print(f"frames {tuple(reference.shape)}, {arguments.steps} steps, {arguments.threads} threads, {arguments.rounds} rounds")
print(f"native order against diffusers: largest difference {(native - reference).abs().max() * 255:.4f} / 255")
print(f"hilbert order against native:   largest difference {(hilbert - native).abs().max():.2e}")
medians = {}
for name, runs in results.items():
    medians[name] = statistics.median(s for run in runs for s in run[1][1:]), statistics.median(run[2] for run in runs)
    print(f"{name:9s} step {medians[name][0]:.3f} s, decode {medians[name][1]:.2f} s")
print(f"ratio diffusers / ours: step {medians['diffusers'][0] / medians['native'][0]:.2f}, decode {medians['diffusers'][1] / medians['native'][1]:.2f}")
