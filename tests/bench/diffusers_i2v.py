#!/usr/bin/env python3
"""Times diffusers' WanImageToVideoPipeline with random weights in the four steps of a distilled model: encoding the first frame, steps, decoding.

  tests/bench/diffusers_i2v.py configs/wan-2.2-i2v-a14b.yaml [--size 640x640] [--frames 81] [--device cuda]

One transformer serves as both experts, and the text is given as embeddings, so neither its time nor loading is counted. The first video warms up. For each
of the next videos the script prints the seconds of the three parts. Needs torch, diffusers, numpy, pyyaml and ftfy.
"""
import argparse
import statistics
import time

import diffusers
import numpy
import PIL.Image
import torch
import yaml


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='a file of configs/ of a Wan 2.2 model that takes an image')
    parser.add_argument('--size', default='640x640')
    parser.add_argument('--frames', type=int, default=81)
    parser.add_argument('--videos', type=int, default=2)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--layers', type=int, help='of the transformer, for a quick test')
    return parser.parse_args()


def build(make, device, dtype):
    """Returns a model with random weights, made on the device."""
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = make()
    torch.set_default_dtype(torch.float32)
    return model.to(dtype).eval()


def timed(times, name, call):
    """Returns a function that adds the seconds of each call to times[name]."""
    def run(*arguments, **named):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        result = call(*arguments, **named)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times[name] = times.get(name, 0) + time.perf_counter() - start
        return result
    return run


def main():
    options = parse()
    architecture = yaml.safe_load(open(options.config))['architecture']
    if options.layers:
        architecture['transformer']['num_layers'] = options.layers
    torch.manual_seed(0)
    transformer = build(lambda: diffusers.WanTransformer3DModel.from_config(architecture['transformer']), options.device, torch.bfloat16)
    vae = build(lambda: diffusers.AutoencoderKLWan.from_config(architecture['vae']), options.device, torch.float32)  # as diffusers' example has it
    pipeline = diffusers.WanImageToVideoPipeline(
        tokenizer=None, text_encoder=None, vae=vae, transformer=transformer, transformer_2=transformer, boundary_ratio=architecture['boundary_ratio'],
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=5.0))
    pipeline.set_progress_bar_config(disable=True)
    times = {}
    transformer.forward = timed(times, 'steps', transformer.forward)
    vae.encode, vae.decode = timed(times, 'encoding', vae.encode), timed(times, 'decoding', vae.decode)
    width, height = map(int, options.size.split('x'))
    image = PIL.Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=numpy.uint8))
    text = torch.randn(1, 512, architecture['transformer']['text_dim'], dtype=torch.bfloat16, device=options.device)
    rows = []
    for k in range(options.videos + 1):
        times.clear()
        with torch.no_grad():
            pipeline(image=image, prompt_embeds=text, height=height, width=width, num_frames=options.frames, num_inference_steps=4, guidance_scale=1.0,
                     output_type='np')
        print('warm-up' if k == 0 else f'video {k}', {name: round(seconds, 2) for name, seconds in times.items()}, f'together {sum(times.values()):.2f} s', flush=True)
        rows.append(sum(times.values()))
    print(f'diffusers {diffusers.__version__}, torch {torch.__version__}: {statistics.median(rows[1:]):.2f} s, median of {options.videos}')


main()
