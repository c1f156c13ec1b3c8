#!/usr/bin/env python3
"""Measures how many blocks of attention hold how much of its mass, for each step, layer and head.

A block is 128 queries x 64 keys. Its mass is its part of the softmax, averaged over its queries. For each 128 queries, the script counts the fewest blocks
that together hold 50, 90, 95 and 99% of the mass, as a share of all blocks. It reports the median and the 90th percentile of these shares.

SOURCE is either a folder that assets/small-training/export.py wrote, whose model then makes a video, or a file of build/tests/bench/capture_attention. The token
orders come from the attention library: PYTHONPATH=attention/python SPARSEREEL_ATTENTION_LIBRARY=build/libsparsereel_attention.so tests/bench/attention_mass.py SOURCE
"""
import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from sparsereel import token_order

sys.path += [str(Path(__file__).resolve().parents[2] / 'assets' / folder) for folder in ('small-training', 'tiny-training')]
import model as models  # noqa: E402
import unigram  # noqa: E402
import vae as vaes  # noqa: E402

QUERIES, KEYS = 128, 64             # size of a block
MASSES = (0.5, 0.9, 0.95, 0.99)


def shares_of_blocks(q, k):
    """Returns the shares of blocks [query blocks, MASSES] of one head. q and k are [tokens, head_dim]; keys may be more than queries."""
    limits, rows = torch.tensor(MASSES, device=q.device), []
    for part in q.float().split(16 * QUERIES):
        weights = torch.softmax(part @ k.float().T * q.shape[1] ** -0.5, -1)
        weights = torch.nn.functional.pad(weights, (0, -len(k) % KEYS, 0, -len(part) % QUERIES))
        mass = weights.unflatten(1, (-1, KEYS)).sum(2).unflatten(0, (-1, QUERIES)).sum(1)
        largest = (mass / mass.sum(1, keepdim=True)).sort(1, descending=True).values.cumsum(1)
        counts = (largest[:, None] < limits[:, None] - 1e-6).sum(2) + 1
        rows.append(counts.clamp_max(mass.shape[1]) / mass.shape[1])
    return torch.cat(rows)


def measure(q, k, places, step, layer):
    """Returns a row of the report for each head. q and k are [heads, tokens, head_dim] in native order, with text tokens, if any, after the video tokens."""
    text = torch.arange(len(places), k.shape[1], device=k.device)
    k = k[:, torch.cat([places, text])]
    rows = []
    for head in range(len(q)):
        shares = shares_of_blocks(q[head, places], k[head])
        rows.append({'step': step, 'layer': layer, 'head': head, 'median': shares.median(0).values.tolist(), 'percentile_90': shares.quantile(0.9, 0).tolist()})
    return rows


def read_model(folder, random):
    """Returns the transformer, the text encoder and the tokenizer of a folder. With `random`, the weights are those that training begins with."""
    torch.manual_seed(1)
    parts = []
    for name, kind in (('transformer', models.Transformer), ('text_encoder', models.TextEncoder)):
        net = kind(json.loads((folder / name / 'config.json').read_text()))
        if not random:
            net.load_state_dict({n: w.float() for file in sorted((folder / name).glob('*.safetensors')) for n, w in load_file(file).items()})
        parts.append(net)
    return *parts, unigram.load(str(folder / 'tokenizer' / 'spiece.model'))


def measure_model(args, device):
    transformer, text_encoder, tokenizer = read_model(args.source, args.random)
    for net in (transformer, text_encoder):
        net.to(device, torch.bfloat16 if device == 'cuda' else torch.float32)
    width, height = map(int, args.size.split('x'))
    shape = vaes.latent_shape((height, width), args.frames)
    places = token_order(shape[1], shape[2] // 2, shape[3] // 2, args.order, device=device)
    rows, calls = [], [0] * len(transformer.blocks)

    def watched(layer, attention):
        def over_video(x, cos, sin):
            step, calls[layer] = calls[layer], calls[layer] + 1
            if step in args.at:     # the batch holds the pass without the prompt, then the pass with it
                rows.extend(measure(*(t[-1] for t in attention.queries_and_keys(x[-1:], cos, sin)), places, step, layer))
            return type(attention).over_video(attention, x, cos, sin)
        return over_video

    for layer, block in enumerate(transformer.blocks):
        block.attn1.over_video = watched(layer, block.attn1)
    ids, empty = (models.tokenize(tokenizer, [text]).to(device) for text in (args.prompt, ''))
    models.sample_latents(transformer, text_encoder, ids, empty, shape, args.shift, args.guidance, args.steps)
    return rows


def measure_capture(args, device):
    with safe_open(str(args.source), 'pt') as file:
        about, rows = file.metadata(), []
        places = token_order(*(int(about[side]) for side in ('frames', 'height', 'width')), args.order, device=device)
        for name in about['calls'].split():
            step, layer = map(int, name.split('/'))
            q, k = (file.get_tensor(f'step{step}.layer{layer}.{part}')[-1].to(device).transpose(0, 1) for part in 'qk')
            rows.extend(measure(q, k, places, step, layer))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', type=Path)
    parser.add_argument('--report', type=Path, help='a JSON file for the results')
    parser.add_argument('--order', default='hilbert', help='hilbert, native, time-major or morton')
    model = parser.add_argument_group('for a folder')
    model.add_argument('--random', action='store_true', help='use random weights')
    model.add_argument('--prompt', default='a bricked pink box grows while a cloudy black cube comes closer over a white zigzag background, the camera rises')
    model.add_argument('--size', default='832x480', help='WIDTHxHEIGHT')
    model.add_argument('--frames', type=int, default=49)
    model.add_argument('--steps', type=int, default=50)
    model.add_argument('--at', default='5,25,45', help='steps to measure, from 0')
    model.add_argument('--shift', type=float, default=5.0)
    model.add_argument('--guidance', type=float, default=3.0)
    args = parser.parse_args()
    args.at = [int(step) for step in args.at.split(',')]
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    with torch.no_grad():
        rows = measure_model(args, device) if args.source.is_dir() else measure_capture(args, device)
    print('| step | layer | head | ' + ' | '.join(f'{mass:.0%} of the mass: median, 90th percentile' for mass in MASSES) + ' |')
    print('|---' * (3 + len(MASSES)) + '|')
    for row in rows:
        print(f'| {row["step"]} | {row["layer"]} | {row["head"]} | ' + ' | '.join(f'{a:.3f}, {b:.3f}' for a, b in zip(row['median'], row['percentile_90'])) + ' |')
    if args.report:
        args.report.write_text(json.dumps({'source': str(args.source), 'random': args.random, 'order': args.order, 'masses': MASSES, 'shares_of_blocks': rows}, indent=1))


if __name__ == '__main__':
    main()
