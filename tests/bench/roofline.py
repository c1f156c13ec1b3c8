#!/usr/bin/env python3
"""Calculates the shortest possible time of one forward of a Wan transformer on GeForce GPUs: operations divided by published rates. Measures nothing.

  tests/bench/roofline.py configs/wan-2.1-14b.yaml

Memory traffic is left out: at these sizes it takes less time than the operations. Real kernels reach 60 to 80% of these rates.
"""
import sys

import yaml

# Dense 10^12 operations per second: NVIDIA's white papers for GA102, AD102 and GB202. The rates of bf16 and fp8 are those with fp32 accumulators. On
# GeForce they are half of the rates with fp16 accumulators.
RATES = {
    'RTX 3090': {'int8': 284, 'bf16': 71},
    'RTX 4090': {'int8': 661, 'fp8': 330, 'bf16': 165},
    'RTX 5090': {'int8': 838, 'fp8': 419, 'bf16': 209.5},
}
SIZES = {'832x480': (480, 832, 81), '1280x720': (720, 1280, 81)}
TEXT_TOKENS = 512


def operations(config, size):
    """Returns three numbers of operations, in 10^12: those of the linear layers, of self-attention's product Q.K (P.V has as many), and of cross-attention."""
    height, width, frames = size
    tokens = (height // 16) * (width // 16) * ((frames - 1) // 4 + 1)
    dim = config['num_attention_heads'] * config['attention_head_dim']
    on_video = 6 * dim * dim + 2 * dim * config['ffn_dim']  # weights of the layers that process video tokens: q, k, v and output of self-attention; q and output of cross-attention; feed-forward
    on_text = 2 * dim * dim
    linear = 2 * (tokens * on_video + TEXT_TOKENS * on_text)
    return [config['num_layers'] * each / 1e12 for each in (linear, 2 * tokens * tokens * dim, 4 * tokens * TEXT_TOKENS * dim)]


def seconds(work, rates, linear, scores, values, share=1.0):
    """Returns the seconds of a forward. `linear`, `scores` and `values` name the rates at which linear layers, Q.K and P.V run. `share` is the share of attention's blocks
    that is computed."""
    layers, product, cross = work
    return layers / rates[linear] + share * product * (1 / rates[scores] + 1 / rates[values]) + cross / rates['bf16']


def main():
    transformer = yaml.safe_load(open(sys.argv[1]))['architecture']['transformer']
    print('| GPU | size | bf16, full attention | before | int8, every block | int8, topk 0.5 | int8, topk 0.12 | bf16 / int8, every block |')
    print('|---|---|---|---|---|---|---|---|')
    for gpu, rates in RATES.items():
        eight = 'fp8' if 'fp8' in rates else 'bf16'
        for name, size in SIZES.items():
            work = operations(transformer, size)
            full = seconds(work, rates, 'bf16', 'bf16', 'bf16')
            quantized = seconds(work, rates, 'int8', 'int8', 'int8')
            cells = [full, seconds(work, rates, eight, 'int8', eight), quantized, *(seconds(work, rates, 'int8', 'int8', 'int8', share) for share in (0.5, 0.12))]
            print(f'| {gpu} | {name} | ' + ' | '.join(f'{cell:.2f}' for cell in cells) + f' | {full / quantized:.1f} |')


main()
