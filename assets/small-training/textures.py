"""Draws textures from hashed noise, so that a seed gives the same texture on every device."""
import math

import torch

from scenes import TEXTURE_NAMES


def _hash(x):
    """Returns uniform noise in 0..1 for int64 tensors, the same on every device."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    return (x ^ (x >> 16)).float() * (1 / 4294967296)


def _noises(seeds, size):
    """Returns two kinds of noise [2, m, size, size] with standard deviation 1: fractal noise, and noise with details of 4 to 8 pixels."""
    index = torch.arange(size * size, device=seeds.device).view(1, size, size)
    white = _hash(index * 0x9E3779B1 + seeds.view(-1, 1, 1) * 0x85EBCA77) - 0.5
    f = torch.hypot(torch.fft.fftfreq(size, device=seeds.device)[:, None], torch.fft.rfftfreq(size, device=seeds.device)[None])
    f[0, 0] = 1
    fractal = f.pow(-1.6) * (f > 1.5 / size)
    band = torch.exp(-(torch.log(f / 0.17) / 0.45) ** 2)
    fractal[0, 0] = band[0, 0] = 0
    spectrum = torch.fft.rfft2(white)
    both = torch.fft.irfft2(spectrum * torch.stack([fractal, band])[:, None], s=(size, size))
    return both / both.std((2, 3), keepdim=True)


def _cells(u, v, seeds):
    """Divides the plane into irregular cells around the randomly moved points of a grid. Returns the distance of u, v to the nearest border, in units of the grid."""
    iu, iv = u.floor(), v.floor()
    first = second = torch.full_like(u, 9.0)
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            cu, cv = iu + dx, iv + dy
            key = cu.long() * 0x1F123BB5 + cv.long() * 0x5F356495 + seeds
            d = torch.hypot(cu + 0.15 + 0.7 * _hash(key) - u, cv + 0.15 + 0.7 * _hash(key + 77) - v)
            second = torch.minimum(second, torch.maximum(first, d))
            first = torch.minimum(first, d)
    return second - first


def _pattern(kind, u, v, period, fractal, band, seeds):
    """Returns a pattern at u, v, in pixels. Its values mix the two colors: 0 is the first one, 1 the second. Edges are 2 pixels wide."""
    wave = lambda x, p: torch.sin(2 * math.pi / p * x)
    edge = lambda distance: (0.5 + distance / 2).clamp(0, 1)
    stripes = lambda x: edge(wave(x, period) * period / (2 * math.pi))
    if kind == 'striped':
        return stripes(u)
    if kind == 'checked':
        return edge(wave(u, 2 * period) * wave(v, 2 * period) * period / math.pi)
    if kind == 'dotted':
        row = (v / period).floor()
        r = torch.hypot(torch.remainder(u / period + 0.5 * row, 1) - 0.5, torch.remainder(v / period, 1) - 0.5)
        return edge((0.30 - r) * period)
    if kind == 'wavy':
        return stripes(u + 0.35 * period * wave(v, 3.5 * period))
    if kind == 'zigzag':
        return stripes(u + (torch.remainder(v, 2 * period) - period).abs())
    if kind == 'speckled':
        return (0.5 + 0.8 * (band - 0.4)).clamp(0, 1)
    if kind == 'marbled':
        return (0.5 + 0.5 * wave(u + period * 0.9 * fractal, 3 * period)) ** 2
    if kind == 'cloudy':
        return (0.5 + 0.38 * fractal).clamp(0, 1)
    if kind == 'bricked':
        row = (v / period).floor()
        a, b = torch.remainder(u + period * row, 2 * period), torch.remainder(v, period)
        return 1 - edge(torch.minimum(torch.minimum(a, 2 * period - a), torch.minimum(b, period - b)) - 1.8)
    if kind == 'cobbled':
        return 1 - edge((_cells(u / period, v / period, seeds) - 0.14) * period * 0.7)
    if kind == 'woven':
        return 0.5 * stripes(u) + 0.5 * stripes(v)
    if kind == 'wooden':
        return (0.5 + 0.5 * wave(torch.hypot(u - 300, 0.12 * v) + period * 0.6 * fractal, period)) ** 1.5
    if kind == 'tiled':
        a, b = torch.remainder(u, period), torch.remainder(v, period)
        return 1 - edge(torch.minimum(torch.minimum(a, period - a), torch.minimum(b, period - b)) - 1.6)
    return (0.3 + 0.08 * fractal).clamp(0, 1)


def make_textures(numbers, seeds, size, device):
    """Returns textures [m, 2, size, size] for numbers [m, 11]. The channels are the mix of the two colors and the brightness of the relief."""
    kinds, numbers, seeds = numbers[:, 0].long().tolist(), numbers.to(device, non_blocking=True), seeds.to(device, non_blocking=True)
    fractal, band = _noises(seeds, size)
    axis = torch.arange(size, device=device, dtype=torch.float32)
    pattern = torch.empty(len(kinds), size, size, device=device)
    for kind in set(kinds):
        rows = torch.tensor([i for i, k in enumerate(kinds) if k == kind])
        rows = rows.to(device, non_blocking=True)
        period, angle = (numbers[rows, k].view(-1, 1, 1) for k in (1, 2))
        c, s = torch.cos(angle), torch.sin(angle)
        u, v = axis.view(1, 1, -1) * c + axis.view(1, -1, 1) * s, axis.view(1, -1, 1) * c - axis.view(1, 1, -1) * s
        pattern[rows] = _pattern(TEXTURE_NAMES[kind], u, v, period, fractal[rows], band[rows], seeds[rows].view(-1, 1, 1))
    detail, relief = (numbers[:, k].view(-1, 1, 1) for k in (3, 4))
    height = pattern + detail * (0.11 * band + 0.10 * fractal)
    light = 1 + relief * 0.28 * (height - height.roll((1, 1), (1, 2))) + detail * 0.05 * fractal
    return torch.stack([height.clamp(0, 1), light.clamp(0.5, 1.4)], 1)
