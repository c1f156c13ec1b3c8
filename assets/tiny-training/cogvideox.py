"""CogVideoX's transformer and VAE, T5's encoder and the DDIM schedule in plain PyTorch. The weights have diffusers' and transformers' names.

A module computes in the dtype of its input. Its weights may have another dtype."""
import math

import torch
import torch.nn.functional as F
from torch import nn

HEADS, HEAD_DIM, LAYERS, TIME_WIDTH, TEXT_WIDTH, LATENT_CHANNELS = 4, 64, 6, 64, 128, 8
WIDTH = HEADS * HEAD_DIM
VAE_WIDTHS, GROUPS = (16, 24, 48, 64), 8
TRAIN_STEPS = 1000


class Linear(nn.Linear):
    """A linear layer, perhaps with a LoRA: two matrices `down` [rank, in] and `up` [out, rank], whose product up @ down is added to the weight."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_parameter('down', None)
        self.register_parameter('up', None)

    def matrix(self, dtype):
        return (self.weight if self.up is None else self.weight + self.up @ self.down).to(dtype)

    def forward(self, x):
        return F.linear(x, self.matrix(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class PatchConv(nn.Conv2d):
    """A convolution of patches that do not overlap. Its LoRA has matrices `down` [rank, in, 2, 2] and `up` [out, rank, 1, 1]."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, 2, 2)
        self.register_parameter('down', None)
        self.register_parameter('up', None)

    def matrix(self, dtype):
        """Returns the weight as a matrix [out, 4 * in]."""
        weight = self.weight.flatten(1)
        return (weight if self.up is None else weight + self.up.flatten(1) @ self.down.flatten(1)).to(dtype)


class LayerNorm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


# ---- transformer --------------------------------------------------------------------------------------------------

def rotate(x, table):
    """Applies a rotary table (cosines and sines [N, D]) to x [B, H, N, D]."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([-odd, even], -1).flatten(-2)
    return (x.float() * table[0] + turned * table[1]).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_q, self.norm_k = LayerNorm(HEAD_DIM, eps=1e-6), LayerNorm(HEAD_DIM, eps=1e-6)
        self.to_q, self.to_k, self.to_v = (Linear(WIDTH, WIDTH) for _ in range(3))
        self.to_out = nn.ModuleList([Linear(WIDTH, WIDTH)])

    def forward(self, x, table):
        """x [B, L + N, WIDTH] holds text tokens, then video tokens. Only video tokens have positions."""
        text = x.shape[1] - len(table[0])
        layers = (self.to_q, self.to_k, self.to_v)
        weight, bias = torch.cat([layer.matrix(x.dtype) for layer in layers]), torch.cat([layer.bias for layer in layers]).to(x.dtype)
        q, k, v = (y.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for y in F.linear(x, weight, bias).chunk(3, -1))
        q, k = self.norm_q(q), self.norm_k(k)
        q, k = (torch.cat([y[:, :, :text], rotate(y[:, :, text:], table)], 2) for y in (q, k))
        return self.to_out[0](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Modulation(nn.Module):
    """A layer norm with shift, scale and gate. They are computed from the timestep, and differ for video and text."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = Linear(TIME_WIDTH, 6 * WIDTH), LayerNorm(WIDTH, eps=1e-5)

    def forward(self, x, time, text):
        """Returns the modulated x [B, L + N, WIDTH], and a function that multiplies y by the gates and adds it to x. The first `text` tokens are text."""
        shift, scale, gate, text_shift, text_scale, text_gate = (m[:, None] for m in self.linear(F.silu(time)).chunk(6, 1))
        y = self.norm(x)
        y = torch.cat([y[:, :text] * (1 + text_scale) + text_shift, y[:, text:] * (1 + scale) + shift], 1)
        return y, lambda add: torch.cat([x[:, :text] + text_gate * add[:, :text], x[:, text:] + gate * add[:, text:]], 1)


class Gelu(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = Linear(WIDTH, 4 * WIDTH)

    def forward(self, x):
        return F.gelu(self.proj(x), approximate='tanh')


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.ModuleList([Gelu(), nn.Identity(), Linear(4 * WIDTH, WIDTH)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn1, self.norm2, self.ff = Modulation(), Attention(), Modulation(), FeedForward()

    def forward(self, x, time, table):
        text = x.shape[1] - len(table[0])
        y, add = self.norm1(x, time, text)
        x = add(self.attn1(y, table))
        y, add = self.norm2(x, time, text)
        return add(self.ff(y))


class PatchEmbed(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.proj, self.text_proj = PatchConv(channels, WIDTH), Linear(TEXT_WIDTH, WIDTH)

    def forward(self, x, text):
        """Returns tokens [B, L + T * H/2 * W/2, WIDTH] of latents x [B, T, C, H, W] and text [B, L, TEXT_WIDTH]."""
        b, t, c, h, w = x.shape
        patches = x.view(b, t, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4, 6).reshape(b, t * h * w // 4, 4 * c)
        video = F.linear(patches, self.proj.matrix(x.dtype), self.proj.bias.to(x.dtype))
        return torch.cat([self.text_proj(text), video], 1)


class TimeEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1, self.linear_2 = Linear(WIDTH, TIME_WIDTH), Linear(TIME_WIDTH, TIME_WIDTH)

    def forward(self, timesteps, dtype):
        frequencies = torch.exp(torch.arange(WIDTH // 2, device=timesteps.device, dtype=torch.float32) * (-math.log(10000) / (WIDTH // 2)))
        angles = timesteps[:, None].float() * frequencies
        return self.linear_2(F.silu(self.linear_1(torch.cat([angles.cos(), angles.sin()], 1).to(dtype))))


class NormOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = Linear(TIME_WIDTH, 2 * WIDTH), LayerNorm(WIDTH, eps=1e-5)

    def forward(self, x, time):
        shift, scale = (m[:, None] for m in self.linear(F.silu(time)).chunk(2, 1))
        return self.norm(x) * (1 + scale) + shift


class Transformer(nn.Module):
    def __init__(self, in_channels=LATENT_CHANNELS):
        super().__init__()
        self.patch_embed, self.time_embedding = PatchEmbed(in_channels), TimeEmbedding()
        self.transformer_blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm_final, self.norm_out, self.proj_out = LayerNorm(WIDTH, eps=1e-5), NormOut(), Linear(WIDTH, 4 * LATENT_CHANNELS)

    def forward(self, x, text, timesteps, table, blocks=None):
        """Predicts v [B, T, C, H, W] for noisy latents x of this shape, text [B, L, TEXT_WIDTH] and timesteps [B]. blocks: compiled blocks to
        use in place of the module's own.

        If the transformer takes an image, x has further channels: the image's latents in its first frame, and zeros in the others."""
        b, t, _, h, w = x.shape
        time = self.time_embedding(timesteps, x.dtype)
        tokens = self.patch_embed(x, text)
        for block in blocks or self.transformer_blocks:
            tokens = block(tokens, time, table)
        y = self.proj_out(self.norm_out(self.norm_final(tokens[:, text.shape[1]:]), time))
        return y.reshape(b, t, h // 2, w // 2, -1, 2, 2).permute(0, 1, 4, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4)


# ---- text encoder -------------------------------------------------------------------------------------------------

class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * self.weight.to(x.dtype)


def relative_buckets(length, buckets=32, most=128):
    """Returns T5's bucket [L, L] for the distance between each pair of tokens."""
    place = torch.arange(length)
    far = place[None] - place[:, None]
    half, exact = buckets // 2, buckets // 4
    coarse = exact + (torch.log(far.abs().clamp_min(1).float() / exact) / math.log(most / exact) * (half - exact)).long()
    return (far > 0).long() * half + torch.where(far.abs() < exact, far.abs(), coarse.clamp_max(half - 1))


class TextAttention(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(TEXT_WIDTH, TEXT_WIDTH, bias=False) for _ in range(4))
        if first:
            self.relative_attention_bias = nn.Embedding(32, 4)

    def forward(self, x, bias):
        q, k, v = (layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = (q @ k.mT + bias).float().softmax(-1).to(x.dtype)
        return self.o((scores @ v).transpose(1, 2).flatten(2))


class TextFeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi_0, self.wi_1, self.wo = (nn.Linear(a, b, bias=False) for a, b in ((TEXT_WIDTH, 256), (TEXT_WIDTH, 256), (256, TEXT_WIDTH)))

    def forward(self, x):
        return self.wo(F.gelu(self.wi_0(x), approximate='tanh') * self.wi_1(x))


class TextSublayer(nn.Module):
    def __init__(self, name, module):
        super().__init__()
        self.add_module(name, module)
        self.layer_norm, self.name = RmsNorm(TEXT_WIDTH), name

    def forward(self, x, *more):
        return x + getattr(self, self.name)(self.layer_norm(x), *more)


class TextBlock(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.layer = nn.ModuleList([TextSublayer('SelfAttention', TextAttention(first)), TextSublayer('DenseReluDense', TextFeedForward())])

    def forward(self, x, bias):
        return self.layer[1](self.layer[0](x, bias))


class TextBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.final_layer_norm = nn.ModuleList([TextBlock(k == 0) for k in range(3)]), RmsNorm(TEXT_WIDTH)


class TextEncoder(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.shared, self.encoder = nn.Embedding(vocabulary, TEXT_WIDTH), TextBlocks()

    def forward(self, ids):
        """Returns the encoded text [n, L, TEXT_WIDTH] of ids [n, L]. Padding tokens are not masked, as in CogVideoX's pipeline."""
        x = self.shared(ids)
        table = self.encoder.block[0].layer[0].SelfAttention.relative_attention_bias
        bias = table(relative_buckets(ids.shape[1]).to(ids.device)).permute(2, 0, 1)
        for block in self.encoder.block:
            x = block(x, bias)
        return self.encoder.final_layer_norm(x)


# ---- VAE ----------------------------------------------------------------------------------------------------------

class CausalConv(nn.Module):
    """A convolution in space and time in which a frame depends only on itself and earlier frames. `cache` holds each layer's last frames for the next chunk of a video."""

    def __init__(self, inputs, outputs, size=3):
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, size, padding=(0, size // 2, size // 2))

    def forward(self, x, cache):
        if self.conv.kernel_size[0] > 1:
            before = cache[self] if self in cache else x[:, :, :1].expand(-1, -1, 2, -1, -1)
            x = torch.cat([before, x], 2)
            cache[self] = x[:, :, -2:]
        return self.conv(x)


class SpatialNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm_layer = nn.GroupNorm(GROUPS, channels, eps=1e-6)
        self.conv_y, self.conv_b = CausalConv(LATENT_CHANNELS, channels, 1), CausalConv(LATENT_CHANNELS, channels, 1)

    def forward(self, x, z, cache):
        size = x.shape[2:]
        if size[0] > 1 and size[0] % 2:
            z = torch.cat([F.interpolate(z[:, :, :1], (1, *size[1:])), F.interpolate(z[:, :, 1:], (size[0] - 1, *size[1:]))], 2)
        else:
            z = F.interpolate(z, size)
        return self.norm_layer(x) * self.conv_y(z, cache) + self.conv_b(z, cache)


class PlainNorm(nn.GroupNorm):
    def __init__(self, channels):
        super().__init__(GROUPS, channels, eps=1e-6)

    def forward(self, x, z, cache):
        return super().forward(x)


class ResnetBlock(nn.Module):
    def __init__(self, inputs, outputs, norm):
        super().__init__()
        self.norm1, self.norm2 = norm(inputs), norm(outputs)
        self.conv1, self.conv2 = CausalConv(inputs, outputs), CausalConv(outputs, outputs)
        self.conv_shortcut = nn.Conv3d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, z, cache):
        y = self.conv1(F.silu(self.norm1(x, z, cache)), cache)
        return self.conv_shortcut(x) + self.conv2(F.silu(self.norm2(y, z, cache)), cache)


def by_frame(conv, x):
    """Applies a two-dimensional convolution to each frame of x [B, C, F, H, W]."""
    return conv(x.transpose(1, 2).flatten(0, 1)).unflatten(0, (x.shape[0], -1)).transpose(1, 2)


class Down(nn.Module):
    def __init__(self, channels, in_time):
        super().__init__()
        self.conv, self.in_time = nn.Conv2d(channels, channels, 3, 2), in_time

    def forward(self, x):
        if self.in_time:
            first, rest = x.split([x.shape[2] % 2, x.shape[2] - x.shape[2] % 2], 2)
            x = torch.cat([first, rest.unflatten(2, (-1, 2)).mean(3)], 2)
        return by_frame(self.conv, F.pad(x, (0, 1, 0, 1)))


class Up(nn.Module):
    def __init__(self, channels, in_time):
        super().__init__()
        self.conv, self.in_time = nn.Conv2d(channels, channels, 3, padding=1), in_time

    def forward(self, x):
        first = x.shape[2] % 2 if self.in_time else x.shape[2]              # number of leading frames that are not doubled
        alone, rest = x.split([first, x.shape[2] - first], 2)
        x = torch.cat([alone, rest.repeat_interleave(2, 2)], 2)
        return by_frame(self.conv, x.repeat_interleave(2, 3).repeat_interleave(2, 4))


class Level(nn.Module):
    """Residual blocks, followed by a layer `change` that changes the size. `name` is diffusers' name of that layer."""

    def __init__(self, widths, norm, name='', change=None):
        super().__init__()
        self.resnets = nn.ModuleList([ResnetBlock(a, b, norm) for a, b in zip(widths, widths[1:])])
        if change is not None:
            self.add_module(name, nn.ModuleList([change]))
        self.changes = [change] if change is not None else []

    def forward(self, x, z, cache):
        for block in self.resnets:
            x = block(x, z, cache)
        for change in self.changes:
            x = change(x)
        return x


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (VAE_WIDTHS[0], *VAE_WIDTHS)
        last = VAE_WIDTHS[-1]
        self.conv_in = CausalConv(3, widths[0])
        self.down_blocks = nn.ModuleList([Level(widths[k:k + 2], PlainNorm, 'downsamplers', Down(widths[k + 1], k < 2) if k < 3 else None) for k in range(4)])
        self.mid_block = Level((last, last, last), PlainNorm)
        self.norm_out, self.conv_out = PlainNorm(last), CausalConv(last, 2 * LATENT_CHANNELS)

    def forward(self, x, cache):
        x = self.conv_in(x, cache)
        for level in (*self.down_blocks, self.mid_block):
            x = level(x, None, cache)
        return self.conv_out(F.silu(self.norm_out(x, None, cache)), cache)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (VAE_WIDTHS[-1], *reversed(VAE_WIDTHS))
        self.conv_in = CausalConv(LATENT_CHANNELS, widths[0])
        self.mid_block = Level((widths[0],) * 3, SpatialNorm)
        self.up_blocks = nn.ModuleList([Level((*widths[k:k + 2], widths[k + 1]), SpatialNorm, 'upsamplers', Up(widths[k + 1], k < 2) if k < 3 else None)
                                        for k in range(4)])
        self.norm_out, self.conv_out = SpatialNorm(widths[-1]), CausalConv(widths[-1], 3)

    def forward(self, z, cache):
        x = self.conv_in(z, cache)
        for level in (self.mid_block, *self.up_blocks):
            x = level(x, z, cache)
        return self.conv_out(F.silu(self.norm_out(x, z, cache)), cache)


class Vae(nn.Module):
    """CogVideoX's VAE. It processes a few frames at a time, as diffusers does. Norms are computed over these frames only, so their number matters."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    @staticmethod
    def _chunks(part, x, frames):
        cache, more = {}, x.shape[2] % frames
        ends = [more + frames * (k + 1) for k in range(max(1, x.shape[2] // frames))]
        return torch.cat([part(x[:, :, a:b], cache) for a, b in zip([0, *ends], ends)], 2)

    def encode(self, x):
        """Returns mean and log variance [n, C, T, h, w] of videos [n, 3, F, H, W] in -1..1."""
        mean, logvar = self._chunks(self.encoder, x, 8).chunk(2, 1)
        return mean, logvar.clamp(-30, 20)

    def decode(self, z):
        return self._chunks(self.decoder, z, 2)


# ---- schedule -----------------------------------------------------------------------------------------------------

class Schedule:
    """The DDIM sampler of CogVideoX: v-prediction, zero terminal SNR, SNR shift 3, trailing timesteps."""

    def __init__(self, device='cpu'):
        betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, TRAIN_STEPS, dtype=torch.float64) ** 2
        alphas = (1 - betas).cumprod(0)
        root = (alphas / (3 + (1 - 3) * alphas)).sqrt()
        self.alphas = (((root - root[-1]) * (root[0] / (root[0] - root[-1]))) ** 2).float().to(device)

    @staticmethod
    def timesteps(steps):
        return [round(TRAIN_STEPS - k * TRAIN_STEPS / steps) - 1 for k in range(steps)]

    def alpha(self, t):
        return self.alphas[t] if t >= 0 else self.alphas.new_ones(())

    def clean(self, v, t, x):
        """Returns the clean latents that the prediction v implies for latents x at timestep t."""
        return self.alpha(t).sqrt() * x - (1 - self.alpha(t)).sqrt() * v

    def weights(self, t, before):
        """Returns the factors of the sample and of the predicted clean latents in a DDIM step from timestep t to timestep `before` (-1: to the clean latents)."""
        sample = ((1 - self.alpha(before)) / (1 - self.alpha(t))).sqrt()
        return sample, self.alpha(before).sqrt() - self.alpha(t).sqrt() * sample

    def step(self, clean, t, before, x):
        a, b = self.weights(t, before)
        return a * x + b * clean
