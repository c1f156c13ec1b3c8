#!/usr/bin/env python3
"""python tests/bench/compare_transformer.py BENCH_TRANSFORMER CHECKPOINT: times one transformer forward on a CPU by diffusers and by our
program in turns, in fp32 with the same inputs. Prints the medians, their ratio and how far the predictions differ. Needs torch, diffusers, safetensors."""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from diffusers import CogVideoXPipeline, CogVideoXTransformer3DModel
from safetensors.torch import load_file, save_file


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", help="the built bench_transformer")
    parser.add_argument("checkpoint", type=pathlib.Path, help="pipeline folder")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument("--forwards", type=int, default=3, help="timed forwards a turn, after one that warms up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", nargs="+", default=["full:native:1", "full:hilbert:1", "sparse:hilbert:0.5"], help="mode:token order:topk")
    return parser.parse_args()


def make_inputs(config, path):
    """Writes random inputs for a batch of 2, as with guidance, at the model's sample size. Returns them."""
    generator = torch.Generator().manual_seed(0)
    frames = (config.sample_frames - 1) // config.temporal_compression_ratio + 1
    inputs = {"latents": torch.randn(2, frames, config.in_channels, config.sample_height, config.sample_width, generator=generator),
              "text": 0.3 * torch.randn(2, config.max_text_seq_length, config.text_embed_dim, generator=generator), "timesteps": torch.tensor([600, 600])}
    save_file(inputs, path)
    return inputs


@torch.inference_mode()
def time_diffusers(model, inputs, forwards):
    latents = inputs["latents"]
    owner = type("Owner", (), {"transformer": model, "vae_scale_factor_spatial": 8})()
    rotary = None
    if model.config.use_rotary_positional_embeddings:
        rotary = CogVideoXPipeline._prepare_rotary_positional_embeddings(owner, latents.shape[3] * 8, latents.shape[4] * 8, latents.shape[1], torch.device("cpu"))
    seconds = []
    for _ in range(1 + forwards):
        start = time.perf_counter()
        prediction = model(latents, inputs["text"], inputs["timesteps"], image_rotary_emb=rotary, return_dict=False)[0]
        seconds.append(time.perf_counter() - start)
    return seconds[1:], prediction


def time_ours(options, run, inputs_file, output_file):
    mode, order, topk = run.split(":")
    command = [options.bench, str(options.checkpoint), inputs_file, output_file, mode, order, topk, str(options.forwards), str(options.threads)]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return report, load_file(output_file)["prediction"]


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    model = CogVideoXTransformer3DModel.from_pretrained(options.checkpoint, subfolder="transformer", torch_dtype=torch.float32).eval()
    theirs, ours, reports = [], {run: [] for run in options.runs}, {}
    with tempfile.TemporaryDirectory() as folder:
        inputs_file, output_file = f"{folder}/inputs.safetensors", f"{folder}/output.safetensors"
        inputs = make_inputs(model.config, inputs_file)
        for _ in range(options.rounds):
            seconds, expected = time_diffusers(model, inputs, options.forwards)
            theirs += seconds
            for run in options.runs:
                report, prediction = time_ours(options, run, inputs_file, output_file)
                ours[run] += report["seconds"]
                report["error"] = ((prediction - expected).abs().max() / expected.abs().max()).item()
                reports[run] = report
    reference = statistics.median(theirs)
    print(f"{'diffusers ' + str(options.threads) + ' threads':24} {reference * 1e3:8.1f} ms  (min {min(theirs) * 1e3:.1f}, max {max(theirs) * 1e3:.1f})")
    for run, seconds in ours.items():
        report, median = reports[run], statistics.median(seconds)
        print(f"{run:24} {median * 1e3:8.1f} ms  (min {min(seconds) * 1e3:.1f}, max {max(seconds) * 1e3:.1f})  {reference / median:.2f}x  attention {report['attention_seconds'] * 1e3:.0f} ms  "
              f"sparsity {report['sparsity']:.2f}  off by {report['error']:.1e} of the scale  {report['kernel']}")


if __name__ == "__main__":
    main()
