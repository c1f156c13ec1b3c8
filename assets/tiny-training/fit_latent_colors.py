#!/usr/bin/env python3
"""Fits the linear map from latent channels to colors that `--preview` draws with; see models/families/latent_colors.cpp.

Makes videos with the built program, keeps their latents, and solves one least-squares problem: the mean color of the
pixels and frames that a latent stands for, in -1..1, from its channels and a constant. Prints the rows of the table and
how much of the colors' variance they explain in videos that were not fitted.

    python3 assets/tiny-training/fit_latent_colors.py --program build/sparsereel
"""
import argparse
import json
import pathlib
import struct
import subprocess
import tempfile

import numpy


def read_tensor(file, name):
    """Returns a tensor of a .safetensors file in fp32."""
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + size])[name]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    kind = {"F32": numpy.float32, "F16": numpy.float16, "U8": numpy.uint8}[entry["dtype"]]
    return numpy.frombuffer(data[begin:end], kind).reshape(entry["shape"]).astype(numpy.float32)


def colors_of_latents(frames, count, height, width):
    """Returns the mean colors [count * height * width, 3] of the pixels and frames of each latent, in -1..1.

    The first latent frame stands for the first frame alone, and each other one for the same number of frames.
    """
    side_y, side_x = frames.shape[1] // height, frames.shape[2] // width
    small = frames.reshape(frames.shape[0], height, side_y, width, side_x, 3).mean((2, 4))
    stride = (len(small) - 1) // max(1, count - 1)
    groups = [small[:1]] + [small[1 + i * stride : 1 + (i + 1) * stride] for i in range(count - 1)]
    return numpy.stack([group.mean(0) for group in groups]).reshape(-1, 3) * 2 - 1


def sample(options, prompt, seed, folder):
    """Makes a video. Returns its latents [N, C] and their colors [N, 3]."""
    latents, frames = folder / "latents.safetensors", folder / "frames.safetensors"
    command = [options.program, "generate", "-p", prompt, "--seed", str(seed), "--steps", str(options.steps)]
    command += ["--quiet", "-o", str(frames), "--save-latents", str(latents)] + options.more
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    values = read_tensor(latents, "latents")[0]
    if options.channels_first:
        values = values.transpose(1, 0, 2, 3)
    count, channels, height, width = values.shape
    colors = colors_of_latents(read_tensor(frames, "frames"), count, height, width)
    return values.transpose(0, 2, 3, 1).reshape(-1, channels), colors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/sparsereel")
    parser.add_argument("--prompts", type=pathlib.Path, default=pathlib.Path("assets/prompts/tiny-200.txt"))
    parser.add_argument("--videos", type=int, default=24, help="every fourth one is held out")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--channels-first", action="store_true", help="the latents are [1, C, F, H, W]")
    parser.add_argument("more", nargs="*", help="further options of generate, behind --")
    options = parser.parse_args()
    prompts = [line for line in options.prompts.read_text().splitlines() if line.strip()]
    prompts = prompts[:: max(1, len(prompts) // options.videos)][: options.videos]
    fitted, held_out = [], []
    with tempfile.TemporaryDirectory() as folder:
        for index, prompt in enumerate(prompts):
            (held_out if index % 4 == 3 else fitted).append(sample(options, prompt, index, pathlib.Path(folder)))
    with_constant = [numpy.hstack([latents, numpy.ones_like(latents[:, :1])]) for latents, _ in fitted]
    factors = numpy.linalg.lstsq(numpy.vstack(with_constant), numpy.vstack([colors for _, colors in fitted]), 1e-6)[0]
    for row in factors[:-1]:
        print("    {" + ", ".join(f"{value:.6f}F" for value in row) + "},")
    print("constant {" + ", ".join(f"{value:.6f}F" for value in factors[-1]) + "}")
    latents = numpy.vstack([latents for latents, _ in held_out])
    colors = numpy.vstack([colors for _, colors in held_out])
    error = latents @ factors[:-1] + factors[-1] - colors
    print("explained variance, held out:", 1 - error.var(0) / colors.var(0), "of", len(held_out), "videos")


if __name__ == "__main__":
    main()
