#!/usr/bin/env python3
"""Compares the error of our quantized attention with that of SageAttention 2's scheme, both emulated in fp64.

    sage_error.py [--tokens N] [--heads H] [--queries Q] [--head-dims 64,128] [--data NAME...] [--lag L] [--seed S]
    sage_error.py --file CAPTURE.safetensors

Prints the relative L1 error (sum |o - o*| / sum |o*|) and the cosine against exact attention o* on the same bf16
inputs. Also prints the ratio of our error to theirs, with its standard error. The ratio must be at most 1.05. All
numbers are means over heads; each head has Q queries from the middle of the sequence. A single head is not enough: its
queries share a part of V's rounding error, so the ratio varies by 5% from head to head on gaussian data. With --file,
reads data that capture_attention saved. Otherwise, makes the data.

"theirs" is `sageattn_qk_int8_pv_fp8_cuda_sm90` with its defaults, as in thu-ml/SageAttention at commit d1a57a5 (core.py,
triton/quant_per_thread.py, csrc/fused/fused.cu, csrc/qattn/qk_int_sv_f8_cuda_sm90.cu and attn_utils.cuh). It subtracts
the mean of K from K. Q and K are int8 with the scale max|x| / 127 + 1e-7. They are rounded half away from zero. Queries i and i + 8 of 16 share a
scale, and so do the 32 keys j of 128 with equal j % 8 / 2. Tiles have 128 keys and a running maximum. P = exp2(s - m +
8.807) is e4m3, and the row sum adds P before it is rounded. V is not centered. It is e4m3 with one scale max|v| / 448 per
channel.

"ours" computes statistics from 512 evenly spaced tokens, as attention/cuda/prepass/statistics.cu does: the mean of K,
the center and scale of V, and the balance factors of the channels of Q and K. It subtracts the mean of K, divides each
channel of K by sqrt(rms k / rms q), and multiplies the channel of Q by this number. Q and K are int8, rounded half to
even. Each query has a scale, and so have the 16 keys j of 64 with equal j % 8 / 2. Subtiles have 128 keys (head_dim 64)
or 64. A warp has 16 query rows, each with a reference maximum m. If a score in these rows exceeds its m by more than
L = 4 log2 units, m rises to the true maximum in all 16 rows. P = exp2(s - m) * 448 / 2^L is e4m3, and the row sum adds
the rounded P. V, less its center and the mean of its block of 64 tokens, is e4m3 with one scale per channel. The block
means also correct the rounding error of the block's sum. They are multiplied by the block's sum of P and added to O, both
in fp16. "linear" uses the Hopper kernel's exponential: the float with the bits round((y + 126.94) * 2^23), which is 2^y
with a linear mantissa and a bias that centers the error (attention/cuda/hopper/softmax.cuh). "exact" uses exp2.

This script does not emulate the tensor core's sums of e4m3 products (about 13 bits in both schemes), ex2.approx, or the
bf16 rounding of K in "theirs". It also ignores that our kernel uses the exact exponential where a mask applies, and for
heads in which the product of the longest query and the longest key exceeds 190 log2 units.

Results with the defaults (CPU, torch 2.11.0), as ratios to the error of "theirs", first of "exact", then of "linear". The
results for head_dim 64 and 128 differ by at most .04. Gaussian data, with or without means in K: .92, 1.02. With means in
V, too: .69, .76. Structured data without means in V: .89, .92. Structured data: .84, .87. Smooth data: .53, .55.
Gaussian data with other numbers of tokens, head_dim 64, linear: 1.026 with 1024 tokens, 1.020 with 2048, 1.019 with
8192, 1.012 with 16384.
"""

import argparse
import json
import math
import mmap

import torch

F64 = torch.float64
LOG2E = math.log2(math.e)
E4M3_MAX = 448.0
CHUNK = 1024  # number of queries that are computed at a time


def e4m3(x):
    return x.to(torch.float32).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(F64)


def half_away(x):
    return torch.trunc(x + torch.where(x >= 0, 0.5, -0.5))


def int8(x, groups, rounding):
    """Rounds x [N, D] to int8. Rows with the same number in `groups` (int64 [N]) share a scale. Returns the rounded values."""
    largest = torch.zeros(int(groups.max()) + 1, dtype=F64).scatter_reduce_(0, groups, x.abs().amax(1), "amax")
    scale = (largest / 127 + 1e-7)[groups].unsqueeze(1)
    return rounding(x / scale).clamp(-127, 127) * scale


def e4m3_values(v):
    scale = v.abs().amax(0).clamp_min(1e-300) / E4M3_MAX
    return e4m3(v / scale) * scale


def key_groups(tokens, block):
    """Returns the group of each key. In a block, keys j with equal j % 8 / 2 are a group, because one thread of the GPU holds their scores."""
    j = torch.arange(tokens)
    return j // block * 4 + j % 8 // 2


def in_tiles(scores, tile):
    """Splits scores [rows, N] into [rows, tiles, tile]. Pads the last tile with -inf."""
    missing = -scores.shape[1] % tile
    padded = torch.nn.functional.pad(scores, (0, missing), value=-math.inf)
    return padded.unflatten(1, (-1, tile))


def exact(q, k, v):
    return torch.cat([torch.softmax(part @ k.T / math.sqrt(q.shape[1]), 1) @ v for part in q.split(CHUNK)])


def theirs(q, k, v):
    tokens, head_dim = q.shape
    i = torch.arange(tokens)
    q8 = int8(q, i // 16 * 8 + i % 8, half_away)
    k8 = int8(k - k.mean(0), key_groups(len(k), 128), half_away)
    v8 = e4m3_values(v)
    out = []
    for part in q8.split(CHUNK):
        s = in_tiles(part @ k8.T * (LOG2E / math.sqrt(head_dim)), 128)
        running = s.amax(2).cummax(1).values.unsqueeze(2)
        p = torch.exp2(s - running + 8.807)
        weight = torch.exp2(running - running[:, -1:])
        total = (p * weight).sum((1, 2))
        out.append((e4m3(p) * weight).flatten(1)[:, : len(v)] @ v8 / total.unsqueeze(1))
    return torch.cat(out)


def reference_maxima(s, lag):
    """Returns the reference maximum of each tile of a row, [rows, tiles, 1], for scores s [rows, tiles, tile] (see `ours` above)."""
    tops = torch.nn.functional.pad(s.amax(2), (0, 0, 0, -s.shape[0] % 16), value=-math.inf).unflatten(0, (-1, 16))
    reference = tops[:, :, 0]
    maxima = [reference]
    for tile in range(1, tops.shape[2]):
        top = tops[:, :, tile]
        rises = (top - reference > lag).any(1, keepdim=True)
        reference = torch.where(rises, torch.maximum(reference, top), reference)
        maxima.append(reference)
    return torch.stack(maxima, 2).flatten(0, 1)[: s.shape[0]].unsqueeze(2)


def linear(log2_p):
    """Returns 2^log2_p with a linear mantissa: the float with the bits round((log2_p + 126.94) * 2^23)."""
    bits = torch.round((log2_p + 126.94) * 2.0**23).clamp_min(0)
    return bits.to(torch.int32).view(torch.float32).to(F64)


def sampled_means_and_scale(k, v):
    """Returns the mean of K and the center and scale of V, computed from 512 evenly spaced tokens, as in attention/cuda/prepass/statistics.cu."""
    stride = max(len(k) // 512, 1)
    sample = v[::stride]
    mean = sample.mean(0)
    real = mean.abs() * math.sqrt(len(sample)) > 0.6 * (sample.amax(0) - sample.amin(0))
    center = torch.where(real, mean, 0) if stride > 1 else mean
    scale = (sample - center).abs().amax(0).clamp_min(1e-30) * (8 if stride > 1 else 2) / E4M3_MAX
    return k[::stride].mean(0), center, scale


def balance(q, k):
    """Returns a factor per channel, by which Q is multiplied and K, less its mean, is divided."""

    def squares(x):
        mean = x[:: max(len(x) // 512, 1)].square().mean(0)
        return mean.clamp_min(float(mean.max()) / 2**20)

    return (squares(k) / squares(q)) ** 0.25


def values_less_block_means(v):
    """Splits v [N, D] into e4m3 numbers [N, D] and fp16 means of each 64 rows, as in attention/cuda/prepass/quantize_values.cu."""

    def means(x):
        sums = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % 64)).unflatten(0, (-1, 64)).sum(1)
        counts = torch.full((len(sums), 1), 64, dtype=F64)
        counts[-1] -= len(sums) * 64 - len(x)
        return sums / counts

    v8 = e4m3(v - means(v).repeat_interleave(64, 0)[: len(v)])
    return v8, means(v - v8).half().to(F64)


def ours(q, k, v, exp2, lag, channels):
    tokens, head_dim = q.shape
    tile = 128 if head_dim == 64 else 64
    key_mean, center, scale = sampled_means_and_scale(k, v)
    v8, means = values_less_block_means((v - center) / scale)
    q8 = int8(q * channels, torch.arange(tokens), torch.round)
    k8 = int8((k - key_mean) / channels, key_groups(len(k), 64), torch.round)
    out = []
    for part in q8.split(CHUNK):
        s = in_tiles(part @ k8.T * (LOG2E / math.sqrt(head_dim)), tile)
        reference = reference_maxima(s, lag)
        p = e4m3(exp2(s - reference + (math.log2(E4M3_MAX) - lag)))
        sums = p.flatten(1).unflatten(1, (-1, 64)).sum(2)[:, : len(means)].half().to(F64)
        weight = torch.exp2(reference - reference[:, -1:])
        block_weight = weight.repeat_interleave(tile // 64, 1)[:, : len(means), 0]
        p = (p * weight).flatten(1)
        o = p[:, : len(v)] @ v8 + (sums * block_weight) @ means
        out.append(o / p.sum(1, keepdim=True) * scale + center)
    return torch.cat(out)


def gaussian(tokens, head_dim, k_mean, v_mean):
    """Returns normally distributed q, k and v. `k_mean` and `v_mean` are the standard deviations of the channels' means."""
    q, k, v = (torch.randn(tokens, head_dim, dtype=F64) for _ in range(3))
    return q, k + k_mean * torch.randn(head_dim, dtype=F64), v + v_mean * torch.randn(head_dim, dtype=F64)


def structured(tokens, head_dim, v_mean=0.5):
    """Returns data as app/lab/measure/inputs.cpp makes them: neighbors are similar, attention is near the diagonal, and there are outlier channels and means."""

    def smooth():
        shared = torch.randn((tokens + 15) // 16, head_dim, dtype=F64).repeat_interleave(16, 0)[:tokens]
        return (shared + torch.randn(tokens, head_dim, dtype=F64)) * math.sqrt(0.5)

    def gains(gain):
        g = torch.ones(head_dim, dtype=F64)
        g[torch.randperm(head_dim)[: (head_dim + 31) // 32]] = gain
        return g

    def mean(size):
        return size * torch.randn(head_dim, dtype=F64)

    periods = torch.logspace(math.log10(32), math.log10(max(64.0, 4.0 * tokens)), head_dim // 2, dtype=F64)
    phase = torch.arange(tokens, dtype=F64).unsqueeze(1) * (2 * math.pi / periods)
    rise = 4 + 12 * torch.rand(1, dtype=F64)
    local = torch.cat([phase.cos(), phase.sin()], 1) * torch.sqrt(2 * rise / math.sqrt(head_dim))
    return smooth() + local + mean(0.5), (smooth() + local) * gains(3) + mean(2), smooth() * gains(6) + mean(v_mean)


def loud(tokens, head_dim):
    """Returns the `loud` data of inputs.cpp: four channels of k hold most of its energy, and have no mean after the rotary embedding."""

    def rotated(x):
        angles = torch.arange(tokens, dtype=F64).unsqueeze(1) * 1e4 ** (-torch.arange(0, head_dim, 2) / head_dim)
        turned = torch.view_as_complex(x.unflatten(1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(1)

    q, k, v = gaussian(tokens, head_dim, 0, 0)
    for first in (2, head_dim // 4 * 2):
        q[:, first : first + 2] *= 0.3
        k[:, first] += 30
        k[:, first + 1] -= 30
    return rotated(q), rotated(k), v


def slow(tokens, head_dim):
    """Returns the `smooth` data of inputs.cpp: q and k as in structured(), and a V with a slow wave in each channel and little noise."""
    q, k, _ = structured(tokens, head_dim)
    periods = (1 + 7 * torch.rand(head_dim, dtype=F64)) * tokens / 8
    phase = 2 * math.pi * torch.rand(head_dim, dtype=F64)
    wave = torch.cos(torch.arange(tokens, dtype=F64).unsqueeze(1) * (2 * math.pi / periods) + phase)
    return q, k, wave + 0.2 * torch.randn(tokens, head_dim, dtype=F64)


DATA = {
    "gaussian": lambda n, d: gaussian(n, d, 0, 0),
    "gaussian, means in K": lambda n, d: gaussian(n, d, 2, 0),
    "gaussian, means in K and V": lambda n, d: gaussian(n, d, 2, 0.5),
    "structured, no means in V": lambda n, d: structured(n, d, 0),
    "structured": structured,
    "smooth": slow,
    "loud": loud,
}


def captured(path):
    """Yields (q, k, v) of every head in a file that capture_attention wrote."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])

    def tensor(name):
        begin, end = (start + offset for offset in header[name]["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float16)
        return flat.view(header[name]["shape"]).transpose(1, 2).flatten(0, 1).to(F64)

    for call in header["__metadata__"]["calls"].split():
        step, layer = call.split("/")
        yield from zip(*(tensor(f"step{step}.layer{layer}.{part}") for part in "qkv"))


def middle(q, count):
    """Returns `count` queries from the middle of the sequence. The first one begins a tile of 128."""
    start = max(0, (len(q) - count) // 2 // 128 * 128)
    return q[start : start + count]


def measure(heads, queries, lag):
    """Returns [heads, scheme, 2]: the relative L1 and the cosine of the schemes theirs, exact and linear. `heads` is an iterable of (q, k, v)."""
    rows = []
    for head in heads:
        q, k, v = (x.to(torch.bfloat16).to(F64) for x in head)
        channels = balance(q, k - sampled_means_and_scale(k, v)[0])
        q = middle(q, queries)
        expected = exact(q, k, v)
        row = []
        for out in (theirs(q, k, v), ours(q, k, v, torch.exp2, lag, channels), ours(q, k, v, linear, lag, channels)):
            cosine = torch.nn.functional.cosine_similarity(out.flatten(), expected.flatten(), 0)
            row.append(torch.stack([(out - expected).abs().sum() / expected.abs().sum(), cosine]))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def print_row(name, tokens, head_dim, result):
    mean = result.mean(0)
    cells = [f"{l1:.5f}" for l1 in mean[:, 0].tolist()]
    for scheme in (1, 2):
        ratios = result[:, scheme, 0] / result[:, 0, 0]
        error = float(ratios.std()) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
        cells.append(f"{float(mean[scheme, 0] / mean[0, 0]):.3f} ± {error:.3f}")
    cells += [f"{cosine:.6f}" for cosine in mean[:, 1].tolist()]
    print(f"| {name} | {tokens} | {head_dim} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--lag", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", choices=DATA, nargs="*", default=list(DATA))
    parser.add_argument("--file")
    args = parser.parse_args()
    print(
        "| data | tokens | head_dim | L1 theirs | L1 exact | L1 linear | exact / theirs | linear / theirs "
        "| cos theirs | cos exact | cos linear |\n" + "|---" * 11 + "|"
    )
    if args.file:
        heads = list(captured(args.file))
        print_row("captured", *heads[0][0].shape, measure(heads, args.queries, args.lag))
        return
    for head_dim in map(int, args.head_dims.split(",")):
        for name in args.data:
            torch.manual_seed(args.seed)
            heads = (DATA[name](args.tokens, head_dim) for _ in range(args.heads))
            print_row(name, args.tokens, head_dim, measure(heads, args.queries, args.lag))


if __name__ == "__main__":
    main()
