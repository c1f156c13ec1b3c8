"""Defines the small model: its tokenizer, UMT5 text encoder and Wan transformer, whose weights have the names of transformers and diffusers, and a sampler."""
import math

import torch
import torch.nn.functional as F
from torch import nn

TEXT_TOKENS, TEXT_LENGTH = 80, 512      # largest number of tokens of a caption in training; length to which Wan's pipelines pad texts
TRAIN_STEPS = 1000                      # timesteps are TRAIN_STEPS * sigma
TRANSFORMER = {
    '_class_name': 'WanTransformer3DModel', '_diffusers_version': '0.42.1', 'patch_size': [1, 2, 2], 'num_attention_heads': 2, 'attention_head_dim': 128,
    'in_channels': 16, 'out_channels': 16, 'text_dim': 128, 'freq_dim': 256, 'ffn_dim': 1536, 'num_layers': 12, 'cross_attn_norm': True,
    'qk_norm': 'rms_norm_across_heads', 'eps': 1e-6, 'image_dim': None, 'added_kv_proj_dim': None, 'rope_max_seq_len': 1024, 'pos_embed_seq_len': None,
}
TEXT_ENCODER = {
    'architectures': ['UMT5EncoderModel'], 'model_type': 'umt5', 'vocab_size': 0, 'd_model': 128, 'd_kv': 32, 'd_ff': 384, 'num_layers': 3, 'num_heads': 4,
    'feed_forward_proj': 'gated-gelu', 'is_gated_act': True, 'dense_act_fn': 'gelu_new', 'relative_attention_num_buckets': 32,
    'relative_attention_max_distance': 128, 'layer_norm_epsilon': 1e-6, 'dropout_rate': 0.0, 'pad_token_id': 0, 'eos_token_id': 1,
    'decoder_start_token_id': 0, 'is_encoder_decoder': False, 'use_cache': False, 'tie_word_embeddings': True,
}


# ---- text ---------------------------------------------------------------------------------------------------------

def tokenize(tokenizer, texts):
    """Returns ids [n, TEXT_TOKENS] of texts: the pieces, the end token, and padding. Each text has at least one padding token."""
    ids = torch.zeros(len(texts), TEXT_TOKENS, dtype=torch.long)
    for row, pieces in zip(ids, tokenizer.encode(list(texts))):
        pieces = pieces[:TEXT_TOKENS - 2] + [1]
        row[:len(pieces)] = torch.tensor(pieces)
    return ids


def padding_bias(ids):
    """Returns a bias [B, L] in fp32 for attention scores. It gives the first padding token the weight of all padding tokens up to TEXT_LENGTH, and hides the others."""
    length = (ids != 0).sum(1, keepdim=True)
    place = torch.arange(ids.shape[1], device=ids.device)
    return torch.where(place < length, 0.0, torch.where(place == length, torch.log((TEXT_LENGTH - length).float()), -1e4))


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        return (y * (y.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight.float()).to(x.dtype)


def _buckets(length, buckets, most):
    """Returns T5's bucket [L, L] for the distance between each pair of tokens."""
    place = torch.arange(length)
    far = place[None] - place[:, None]
    half, exact = buckets // 2, buckets // 4
    distance = far.abs()
    coarse = exact + (torch.log(distance.clamp_min(1).float() / exact) / math.log(most / exact) * (half - exact)).long()
    return (far > 0).long() * half + torch.where(distance < exact, distance, coarse.clamp_max(half - 1))


class TextAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        inner, self.heads = c['num_heads'] * c['d_kv'], c['num_heads']
        self.q, self.k, self.v = (nn.Linear(c['d_model'], inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, c['d_model'], bias=False)
        self.relative_attention_bias = nn.Embedding(c['relative_attention_num_buckets'], self.heads)

    def forward(self, x, buckets, mask):
        q, k, v = (p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        bias = self.relative_attention_bias(buckets).permute(2, 0, 1)[None].float() + mask
        weights = torch.softmax((q @ k.mT).float() + bias, -1).to(x.dtype)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class GatedGelu(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wi_0, self.wi_1 = (nn.Linear(c['d_model'], c['d_ff'], bias=False) for _ in range(2))
        self.wo = nn.Linear(c['d_ff'], c['d_model'], bias=False)

    def forward(self, x):
        return self.wo(F.gelu(self.wi_0(x), approximate='tanh') * self.wi_1(x))


class TextLayer(nn.Module):
    def __init__(self, name, inner, c):
        super().__init__()
        setattr(self, name, inner)
        self.name, self.layer_norm = name, RmsNorm(c['d_model'], c['layer_norm_epsilon'])

    def forward(self, x, *rest):
        return x + getattr(self, self.name)(self.layer_norm(x), *rest)


class TextBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layer = nn.ModuleList([TextLayer('SelfAttention', TextAttention(c), c), TextLayer('DenseReluDense', GatedGelu(c), c)])


class TextEncoder(nn.Module):
    """UMT5's encoder. Its output is zero for padding, as in Wan's pipelines."""

    def __init__(self, c):
        super().__init__()
        self.shared = nn.Embedding(c['vocab_size'], c['d_model'])
        self.encoder = nn.Module()
        self.encoder.block = nn.ModuleList(TextBlock(c) for _ in range(c['num_layers']))
        self.encoder.final_layer_norm = RmsNorm(c['d_model'], c['layer_norm_epsilon'])
        self.register_buffer('buckets', _buckets(TEXT_TOKENS, c['relative_attention_num_buckets'], c['relative_attention_max_distance']), persistent=False)
        wide = c['d_model'] ** -0.5
        for name, p in self.named_parameters():
            if 'norm' not in name and 'shared' not in name:
                nn.init.normal_(p, std=(c['d_model'] * c['d_kv']) ** -0.5 if name.endswith('.q.weight') else c['d_ff'] ** -0.5 if '.wo.' in name else wide)

    def forward(self, ids):
        real = ids != 0
        mask = torch.where(real, 0.0, -1e9)[:, None, None]
        x, n = self.shared(ids), ids.shape[1]
        for block in self.encoder.block:
            x = block.layer[1](block.layer[0](x, self.buckets[:n, :n], mask))
        return self.encoder.final_layer_norm(x) * real[..., None]


# ---- transformer --------------------------------------------------------------------------------------------------

def rotary(grid, head_dim, device):
    """Returns the rotary cosines and sines [1, tokens, 1, head_dim / 2] of a grid (frames, rows, columns) of tokens."""
    side = head_dim // 6 * 2
    parts = []
    for axis, (size, dim) in enumerate(zip(grid, (head_dim - 2 * side, side, side))):
        angle = torch.arange(size, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        shape = [1, 1, 1, -1]
        shape[axis] = size
        parts.append(angle.view(*shape[:3], -1).expand(*grid, -1))
    angle = torch.cat(parts, -1).reshape(1, -1, 1, head_dim // 2)
    return angle.cos().float().to(device), angle.sin().float().to(device)


def rotate(x, cos, sin):
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


def layer_norm(x, eps):
    return F.layer_norm(x.float(), x.shape[-1:], eps=eps)


class Attention(nn.Module):
    def __init__(self, width, heads, eps):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])
        self.norm_q, self.norm_k = RmsNorm(width, eps), RmsNorm(width, eps)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1))

    def queries_and_keys(self, x, cos, sin):
        """Returns q and k [B, heads, tokens, head_dim], after norm and rotary embedding."""
        return (rotate(self.split(n(p(x))), cos, sin).transpose(1, 2) for n, p in ((self.norm_q, self.to_q), (self.norm_k, self.to_k)))

    def over_video(self, x, cos, sin):
        q, k = self.queries_and_keys(x, cos, sin)
        y = F.scaled_dot_product_attention(q, k, self.split(self.to_v(x)).transpose(1, 2))
        return self.to_out[0](y.transpose(1, 2).flatten(2))

    def over_text(self, x, text, bias):
        q, k, v = (self.split(t).transpose(1, 2) for t in (self.norm_q(self.to_q(x)), self.norm_k(self.to_k(text)), self.to_v(text)))
        weights = torch.softmax((q @ k.mT).float() * q.shape[-1] ** -0.5 + bias[:, None, None], -1).to(x.dtype)
        return self.to_out[0]((weights @ v).transpose(1, 2).flatten(2))


class Projected(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.proj = nn.Linear(inputs, outputs)

    def forward(self, x):
        return F.gelu(self.proj(x), approximate='tanh')


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.net = nn.ModuleList([Projected(width, inner), nn.Identity(), nn.Linear(inner, width)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


class Block(nn.Module):
    def __init__(self, width, heads, inner, eps):
        super().__init__()
        self.eps = eps
        self.attn1, self.attn2 = Attention(width, heads, eps), Attention(width, heads, eps)
        self.norm2, self.ffn = nn.LayerNorm(width, eps), FeedForward(width, inner)
        self.scale_shift_table = nn.Parameter(torch.zeros(1, 6, width))

    def forward(self, x, time, text, bias, cos, sin):
        """Returns the output [B, tokens, C] of a block. x is [B, tokens, C]; time is [B, frames, 6, C] in fp32."""
        frames = time.shape[1]
        by_frame = lambda t: t.unflatten(1, (frames, -1))
        shift1, scale1, gate1, shift2, scale2, gate2 = (self.scale_shift_table.float() + time)[:, :, :, None].unbind(2)
        y = (by_frame(layer_norm(x, self.eps)) * (1 + scale1) + shift1).flatten(1, 2).to(x.dtype)
        x = (by_frame(x).float() + by_frame(self.attn1.over_video(y, cos, sin)) * gate1).flatten(1, 2).to(x.dtype)
        y = (layer_norm(x, self.eps) * self.norm2.weight.float() + self.norm2.bias.float()).to(x.dtype)
        x = x + self.attn2.over_text(y, text, bias)
        y = (by_frame(layer_norm(x, self.eps)) * (1 + scale2) + shift2).flatten(1, 2).to(x.dtype)
        return (by_frame(x).float() + by_frame(self.ffn(y)) * gate2).flatten(1, 2).to(x.dtype)


def _pair(inputs, outputs):
    pair = nn.Module()
    pair.linear_1, pair.linear_2 = nn.Linear(inputs, outputs), nn.Linear(outputs, outputs)
    return pair


class Transformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c['num_attention_heads'] * c['attention_head_dim']
        self.head_dim, self.freq_dim, self.channels, self.eps = c['attention_head_dim'], c['freq_dim'], c['out_channels'], c['eps']
        self.patch_embedding = nn.Conv3d(c['in_channels'], width, (1, 2, 2), (1, 2, 2))
        self.condition_embedder = nn.Module()
        self.condition_embedder.time_embedder, self.condition_embedder.text_embedder = _pair(c['freq_dim'], width), _pair(c['text_dim'], width)
        self.condition_embedder.time_proj = nn.Linear(width, 6 * width)
        self.blocks = nn.ModuleList(Block(width, c['num_attention_heads'], c['ffn_dim'], c['eps']) for _ in range(c['num_layers']))
        self.proj_out = nn.Linear(width, 4 * c['out_channels'])
        self.scale_shift_table = nn.Parameter(torch.zeros(1, 2, width))
        self.start()

    def start(self):
        """Sets the initial weights. With them, each block returns its input."""
        for name, p in self.named_parameters():
            if name.endswith('.bias'):
                nn.init.zeros_(p)
            elif p.ndim == 2:
                nn.init.xavier_uniform_(p)
            elif p.ndim == 5:
                nn.init.xavier_uniform_(p.view(p.shape[0], -1))
        for layer in [self.proj_out, self.condition_embedder.time_proj] + [b.attn2.to_out[0] for b in self.blocks]:
            nn.init.zeros_(layer.weight)

    def forward(self, x, time, text, bias):
        """Returns the velocity [B, C, F, H, W] of latents x. time is [B, F] in 0..TRAIN_STEPS, text [B, L, text_dim], and bias
        the text's padding_bias()."""
        grid = (x.shape[2], x.shape[3] // 2, x.shape[4] // 2)
        cos, sin = self.tables(grid, x.device)
        embed, exact = self.condition_embedder, lambda layer, y: F.linear(y, layer.weight.float(), layer.bias.float())
        step = torch.exp(-math.log(10000) * torch.arange(self.freq_dim // 2, device=x.device) / (self.freq_dim // 2))
        angle = time.float()[..., None] * step
        time = torch.cat([angle.cos(), angle.sin()], -1)
        time = exact(embed.time_embedder.linear_2, F.silu(exact(embed.time_embedder.linear_1, time)))
        parts = exact(embed.time_proj, F.silu(time)).unflatten(-1, (6, -1))
        text = embed.text_embedder.linear_2(F.gelu(embed.text_embedder.linear_1(text), approximate='tanh'))
        h = self.patch_embedding(x).flatten(2).mT.contiguous()
        for block in self.blocks:
            h = block(h, parts, text, bias, cos, sin)
        shift, scale = (self.scale_shift_table.float() + time[:, :, None]).unsqueeze(3).unbind(2)
        h = (layer_norm(h, self.eps).unflatten(1, (grid[0], -1)) * (1 + scale) + shift).flatten(1, 2).to(h.dtype)
        h = self.proj_out(h).unflatten(1, grid).unflatten(-1, (2, 2, self.channels))
        return h.permute(0, 6, 1, 2, 4, 3, 5).reshape(x.shape[0], self.channels, *x.shape[2:])

    def tables(self, grid, device):
        """Returns rotary() for a grid. Keeps the last few results."""
        if not hasattr(self, '_tables'):
            self._tables = {}
        if grid not in self._tables:
            self._tables[grid] = rotary(grid, self.head_dim, device)
        return self._tables[grid]


def shifted(u, shift):
    """Moves sigmas u in 0..1 towards 1 (pure noise), like flow_shift in schedulers."""
    return shift * u / (1 + (shift - 1) * u)


@torch.no_grad()
def sample_latents(transformer, text_encoder, ids, empty, shape, shift, guidance=5.0, steps=30, seed=1, first=None):
    """Runs Euler steps with guidance. ids [n, L] are those of the prompts, empty [1, L] those of the empty prompt. Returns normalized latents [n, *shape].

    first: normalized latents [n, C, 1, h, w] of a given first frame, which the steps do not change."""
    device, dtype, n = ids.device, next(transformer.parameters()).dtype, len(ids)
    both = torch.cat([empty.expand(n, -1), ids])
    text, bias = text_encoder(both), padding_bias(both)
    x = torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed)).to(device)
    sigmas = shifted(torch.linspace(1, 0, steps + 1), shift).tolist()
    for now, then in zip(sigmas, sigmas[1:]):
        time = torch.full((2 * n, shape[1]), TRAIN_STEPS * now, device=device)
        if first is not None:
            x[:, :, :1], time[:, 0] = first, 0
        u, c = transformer(torch.cat([x, x]).to(dtype), time, text, bias).float().chunk(2)
        x = x + (then - now) * (u + guidance * (c - u))
    if first is not None:
        x[:, :, :1] = first
    return x
