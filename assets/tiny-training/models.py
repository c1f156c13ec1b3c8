"""Builds, loads and runs the components of the tiny pipeline: tokenizer, text encoder, transformer, VAE, rotary tables, and a sampler for batches."""
import glob
import json
import os

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import cogvideox
import shapes
import unigram

TEXT_TOKENS, LATENT_CHANNELS, SIDE = 32, cogvideox.LATENT_CHANNELS, 256
GUIDANCE, STEPS = 6.0, 25


def train_tokenizer(path):
    unigram.train(path, shapes.sample(100, 12000)['caption'], 512)


def tokenize(tokenizer, texts):
    ids = torch.zeros(len(texts), TEXT_TOKENS, dtype=torch.long)
    for row, pieces in zip(ids, tokenizer.encode(list(texts))):
        pieces = pieces[:TEXT_TOKENS - 1] + [1]
        row[:len(pieces)] = torch.tensor(pieces)
    return ids


def make_text_encoder(vocabulary):
    model = cogvideox.TextEncoder(vocabulary)
    for name, p in model.named_parameters():
        if p.ndim == 2:                                                     # T5's initial deviations
            inner = {'q': p.shape[1] * 32, 'o': 128, 'wo': 256, 'shared': 1}.get(name.split('.')[-2], 128)
            nn.init.normal_(p, std=inner ** -0.5)
    return model


def make_denoiser():
    model = cogvideox.Transformer()
    for name, p in model.named_parameters():
        if p.ndim == 2 and ('to_' in name or '.ff.' in name):
            nn.init.xavier_uniform_(p)
        elif p.ndim > 1 and 'patch_embed' in name:
            nn.init.xavier_uniform_(p.view(p.shape[0], -1))
        if name.endswith('.bias') and 'norm_q' not in name and 'norm_k' not in name:
            nn.init.zeros_(p)
    zero = [model.norm_out.linear, model.proj_out]
    for block in model.transformer_blocks:
        zero += [block.norm1.linear, block.norm2.linear]
    for layer in zero:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return model


def load_pipeline(folder):
    """Returns the components of a trained pipeline folder in float32: tokenizer, text encoder, transformer, VAE, and the scaling factor of latents."""
    def weights(part):
        files = sorted(glob.glob(os.path.join(folder, part, '*.safetensors')))
        return {k: w for path in files for k, w in load_float(path).items()}
    tokenizer = unigram.load(os.path.join(folder, 'tokenizer', 'spiece.model'))
    parts = cogvideox.TextEncoder(tokenizer.vocab_size()), cogvideox.Transformer(), cogvideox.Vae()
    for name, model in zip(('text_encoder', 'transformer', 'vae'), parts):
        model.load_state_dict(weights(name))
        model.requires_grad_(False)
    with open(os.path.join(folder, 'vae', 'config.json')) as f:
        return tokenizer, *parts, json.load(f)['scaling_factor']


def rotary_1d(width, positions):
    """Returns the rotary cosines and sines [N, width] of positions [N]. Each value occurs twice, for the two numbers of a pair."""
    angles = torch.outer(positions, 1 / 10000 ** (torch.arange(0, width, 2, dtype=torch.float32) / width)).repeat_interleave(2, 1)
    return angles.cos(), angles.sin()


def rotary(device, half=False):
    """Returns the pipeline's rotary table (cosines and sines) for clips of full size. With `half`, returns the table for clips of half the size with every second frame.
    Their positions are stretched over the same range."""
    grid = torch.arange(SIDE // 16, dtype=torch.float32)
    time = torch.arange(1 + (shapes.FRAMES - 1) // 4, dtype=torch.float32)
    if half:
        grid, time = grid[::2] + 0.5, time[::2]
    parts = [rotary_1d(width, positions) for width, positions in ((16, time), (24, grid), (24, grid))]
    nt, ns = len(time), len(grid)
    table = []
    for k in (0, 1):                                                        # 0: cosines, 1: sines
        t, h, w = (p[k] for p in parts)
        table.append(torch.cat([t[:, None, None].expand(nt, ns, ns, 16), h[None, :, None].expand(nt, ns, ns, 24),
                                w[None, None].expand(nt, ns, ns, 24)], -1).reshape(nt * ns * ns, 64).to(device))
    return tuple(table)


def latent_shape(half=False):
    return (5, LATENT_CHANNELS, SIDE // 16, SIDE // 16) if half else (9, LATENT_CHANNELS, SIDE // 8, SIDE // 8)


@torch.no_grad()
def denoise(denoiser, x, text, empty, table, guidance, steps, watch=(), blocks=None):
    """Runs DDIM from noise x [n, T, C, H, W] in the dtype of text [n, L, E]. empty [1, L, E] is the encoded empty prompt, which guidance 1 does not use.

    Returns the clean latents in float32, and a list of the samples at the timesteps in `watch`, in descending order of timesteps."""
    schedule, n, watched = cogvideox.Schedule(x.device), len(x), []
    guided = guidance != 1
    both = torch.cat([empty.expand(n, -1, -1), text]) if guided else text
    times = schedule.timesteps(steps)
    for t, before in zip(times, [*times[1:], -1]):
        v = denoiser(torch.cat([x, x] if guided else [x]).to(both.dtype), both, torch.full((len(both),), t, device=x.device), table, blocks).float()
        if guided:
            u, c = v.chunk(2)
            v = u + guidance * (c - u)
        clean = schedule.clean(v, t, x)
        watched += [schedule.step(clean, t, w, x) for w in watch if before < w <= t]
        x = schedule.step(clean, t, before, x)
    return x, watched


def sample_latents(denoiser, text_encoder, ids, empty, half, guidance=GUIDANCE, steps=STEPS, seed=1, batch=50):
    """Runs DDIM with guidance for many prompts. Returns scaled latents [n, T, C, H, W]."""
    device, out, generator = empty.device, [], torch.Generator().manual_seed(seed)
    dtype, table = next(denoiser.parameters()).dtype, rotary(device, half)
    with torch.no_grad():
        nothing, text = text_encoder(empty).to(dtype), text_encoder(ids.to(device)).to(dtype)
    for some in text.split(batch):
        x = torch.randn(len(some), *latent_shape(half), generator=generator).to(device)
        out.append(denoise(denoiser, x, some, nothing, table, guidance, steps)[0])
    return torch.cat(out)


@torch.no_grad()
def decode(vae, latents, scaling_factor, batch=4):
    """Decodes scaled latents [n, T, C, H, W]. Yields videos [at most batch, 3, F, H, W] in -1..1."""
    dtype = next(vae.parameters()).dtype
    for first in range(0, len(latents), batch):
        z = latents[first:first + batch].transpose(1, 2) / scaling_factor
        yield vae.decode(z.to(dtype)).float().clamp(-1, 1)


def save_half(state, path):
    save_file({k: v.detach().to('cpu', torch.float16).contiguous() for k, v in state.items()}, path)


def load_float(path):
    return {k: v.float() for k, v in load_file(path).items()}
