#!/usr/bin/env python3
"""python tests/bench/compare_vae.py BENCH_VAE CHECKPOINT: times one VAE decode on a CPU by diffusers and by our program in turns, in fp32 with the
same latents. Prints the medians, their ratio, our peak memory and how far the frames differ. Needs torch, diffusers, safetensors."""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from diffusers import AutoencoderKLCogVideoX
from safetensors.torch import load_file, save_file


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", help="the built bench_vae")
    parser.add_argument("checkpoint", type=pathlib.Path, help="pipeline folder")
    parser.add_argument("--latents", default="9x32x32", help="latent frames x height x width")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument("--decodes", type=int, default=2, help="timed decodes of ours a turn, after one that warms up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiled", action="store_true")
    return parser.parse_args()


@torch.inference_mode()
def time_diffusers(vae, latents):
    start = time.perf_counter()
    frames = vae.decode(latents).sample
    return time.perf_counter() - start, frames


def time_ours(options, inputs_file, output_file):
    command = [options.bench, str(options.checkpoint), inputs_file, output_file, str(int(options.tiled)), str(options.decodes), str(options.threads)]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return report, load_file(output_file)["frames"]


def line(name, seconds):
    return f"{name:24} {statistics.median(seconds):7.2f} s  (min {min(seconds):.2f}, max {max(seconds):.2f})"


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    vae = AutoencoderKLCogVideoX.from_pretrained(options.checkpoint, subfolder="vae", torch_dtype=torch.float32).eval()
    if options.tiled:
        vae.enable_tiling()
    sizes = [int(size) for size in options.latents.split("x")]
    latents = torch.randn(1, vae.config.latent_channels, *sizes, generator=torch.Generator().manual_seed(0)) / vae.config.scaling_factor
    time_diffusers(vae, latents[:, :, :1])  # warms up
    theirs, ours = [], []
    with tempfile.TemporaryDirectory() as folder:
        inputs_file, output_file = f"{folder}/inputs.safetensors", f"{folder}/output.safetensors"
        save_file({"latents": latents}, inputs_file)
        for _ in range(options.rounds):
            seconds, expected = time_diffusers(vae, latents)
            theirs.append(seconds)
            report, frames = time_ours(options, inputs_file, output_file)
            ours += report["seconds"]
    error = ((frames - expected).abs().max() / expected.abs().max()).item()
    print(line(f"diffusers {options.threads} threads", theirs))
    print(f"{line('sparsereel', ours)}  {statistics.median(theirs) / statistics.median(ours):.2f}x  off by {error:.1e} of the scale  "
          f"peak {report['peak_bytes'] / 2**20:.0f} MiB (untiled estimate {report['untiled_estimate'] / 2**20:.0f} MiB)")


if __name__ == "__main__":
    main()
