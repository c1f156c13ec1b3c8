"""Wan's VAE for fast training on whole clips. It computes the same as diffusers' AutoencoderKLWan with is_residual, and its weights have the same names.

diffusers runs the layers on chunks of 1, 4, 4, ... frames. All layers are causal, so whole clips give the same results."""
import torch
import torch.nn.functional as F
from torch import nn

LATENTS, FRAMES_A_LATENT, PIXELS_A_LATENT, PATCH = 16, 4, 8, 2
CONFIG = {
    '_class_name': 'AutoencoderKLWan', '_diffusers_version': '0.42.1', 'base_dim': 40, 'decoder_base_dim': 64, 'z_dim': LATENTS, 'dim_mult': [1, 2, 2],
    'num_res_blocks': 1, 'attn_scales': [], 'temperal_downsample': [True, True], 'dropout': 0.0, 'is_residual': True, 'in_channels': 12,
    'out_channels': 12, 'patch_size': 2, 'scale_factor_temporal': FRAMES_A_LATENT, 'scale_factor_spatial': PIXELS_A_LATENT,
}


# ---- norm, SiLU and causal padding in one pass ----------------------------------------------------------------------

def _norm_parts(x, gamma):
    """Returns x normalized over its channels, and the factor by which x was multiplied, both in fp32."""
    x = x.float()
    scale = (x.square().mean(1, keepdim=True) + 1e-12).rsqrt()
    return x * scale, scale, gamma.float().view(1, -1, *[1] * (x.ndim - 2))


def norm_silu_pad(x, gamma, frames):
    """Returns `frames` frames of zeros followed by silu(norm(x) * gamma)."""
    n, _, g = _norm_parts(x, gamma)
    return F.pad(F.silu(n * g), (0, 0, 0, 0, frames, 0)).to(x.dtype)


def norm_silu_pad_backward(grad, x, gamma, frames):
    n, scale, g = _norm_parts(x, gamma)
    h = n * g
    s = torch.sigmoid(h)
    dh = grad[:, :, frames:].float() * (s * (1 + h * (1 - s)))
    dn = dh * g
    dx = scale * (dn - n * (dn * n).mean(1, keepdim=True))
    return dx.to(x.dtype), (dh * n).sum((0, 2, 3, 4))


class NormSilu(torch.autograd.Function):
    """norm_silu_pad() as an operation that keeps only x and gamma for its backward pass. compile_norms() may replace `forward_pass` and `backward_pass`."""
    forward_pass, backward_pass = staticmethod(norm_silu_pad), staticmethod(norm_silu_pad_backward)

    @staticmethod
    def forward(ctx, x, gamma, frames):
        ctx.save_for_backward(x, gamma)
        ctx.frames = frames
        return NormSilu.forward_pass(x, gamma, frames)

    @staticmethod
    def backward(ctx, grad):
        x, gamma = ctx.saved_tensors
        dx, dgamma = NormSilu.backward_pass(grad, x, gamma, ctx.frames)
        return dx, dgamma.to(gamma.dtype).view_as(gamma), None


def compile_norms(device, dtype):
    """Compiles the two passes of NormSilu and returns True. If compiling fails or gives other results, keeps the plain functions and returns False."""
    x = torch.randn(2, 32, 5, 24, 16, device=device, dtype=dtype).to(memory_format=torch.channels_last_3d)
    gamma, grad = torch.rand(32, device=device, dtype=dtype) + 0.5, torch.randn(2, 32, 7, 24, 16, device=device, dtype=dtype)
    try:
        torch._dynamo.config.recompile_limit = 64
        first, second = torch.compile(norm_silu_pad, dynamic=True), torch.compile(norm_silu_pad_backward, dynamic=True)
        near = lambda a, b: (a.float() - b.float()).norm() <= 0.02 * b.float().norm()
        good = near(first(x, gamma, 2), norm_silu_pad(x, gamma, 2))
        good &= all(near(a, b) for a, b in zip(second(grad, x, gamma, 2), norm_silu_pad_backward(grad, x, gamma, 2)))
        if good:
            NormSilu.forward_pass, NormSilu.backward_pass = staticmethod(first), staticmethod(second)
        return bool(good)
    except Exception as error:      # a missing compiler, for example
        print('norms: not compiled:', str(error)[:200], flush=True)
        return False


# ---- layers -------------------------------------------------------------------------------------------------------

class CausalConv(nn.Conv3d):
    """A causal convolution in space and time. If `padded`, its input already begins with the frames of zeros that pad it."""

    def __init__(self, inputs, outputs, kernel, stride=1):
        kernel = (kernel,) * 3 if isinstance(kernel, int) else kernel
        super().__init__(inputs, outputs, kernel, stride, padding=(0, kernel[1] // 2, kernel[2] // 2))

    def forward(self, x, padded=False):
        return super().forward(x if padded else F.pad(x, (0, 0, 0, 0, self.kernel_size[0] - 1, 0)))


class Norm(nn.Module):
    def __init__(self, channels, ndim=4):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels, *[1] * (ndim - 1)))

    def forward(self, x):
        n, _, gamma = _norm_parts(x, self.gamma.flatten())
        return (n * gamma).to(x.dtype)


class Resnet(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.conv1 = Norm(inputs), CausalConv(inputs, outputs, 3)
        self.norm2, self.conv2 = Norm(outputs), CausalConv(outputs, outputs, 3)
        self.conv_shortcut = CausalConv(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        h = self.conv1(NormSilu.apply(x, self.norm1.gamma, 2), True)
        return self.conv_shortcut(x) + self.conv2(NormSilu.apply(h, self.norm2.gamma, 2), True)


def by_frame(function, x):
    """Applies a function of pictures [N, C, H, W] to each frame of x [B, C, F, H, W]."""
    b, _, t = x.shape[:3]
    y = function(x.transpose(1, 2).flatten(0, 1))
    return y.unflatten(0, (b, t)).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.to_qkv, self.proj = Norm(channels, 3), nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        def attend(y):
            q, k, v = (p[:, None] for p in self.to_qkv(self.norm(y)).flatten(2).mT.chunk(3, -1))
            o = F.scaled_dot_product_attention(q, k, v)
            return self.proj(o[:, 0].mT.unflatten(2, y.shape[2:]))
        return x + by_frame(attend, x)


class MidBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.resnets = nn.ModuleList([Resnet(channels, channels), Resnet(channels, channels)])
        self.attentions = nn.ModuleList([Attention(channels)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Downsampler(nn.Module):
    def __init__(self, channels, time):
        super().__init__()
        self.resample = nn.Sequential(nn.Identity(), nn.Conv2d(channels, channels, 3, 2))
        self.time_conv = CausalConv(channels, channels, (3, 1, 1), (2, 1, 1)) if time else None

    def forward(self, x):
        x = by_frame(lambda y: self.resample(F.pad(y, (0, 1, 0, 1))), x)
        if self.time_conv is None or x.shape[2] == 1:
            return x
        return torch.cat([x[:, :, :1], self.time_conv(x, True)], 2)         # the first frame stays as it is


class Upsampler(nn.Module):
    def __init__(self, channels, time):
        super().__init__()
        self.resample = nn.Sequential(nn.Identity(), nn.Conv2d(channels, channels, 3, padding=1))
        self.time_conv = CausalConv(channels, 2 * channels, (3, 1, 1)) if time else None

    def forward(self, x):
        if self.time_conv is not None and x.shape[2] > 1:
            later = self.time_conv(x[:, :, 1:]).permute(0, 2, 3, 4, 1).unflatten(-1, (2, -1)).permute(0, 1, 4, 2, 3, 5).flatten(1, 2)
            x = torch.cat([x[:, :, :1], later.permute(0, 4, 1, 2, 3)], 2)
        return by_frame(lambda y: self.resample(F.interpolate(y, scale_factor=2, mode='nearest-exact')), x)


# The shortcuts work on channels-last views, so that their results have this layout, too.

def averaged(x, outputs, times, side):
    """Returns the shortcut of a level that shrinks x: the means of equally large groups of values, in the order (channel, frame, row, column)."""
    b, c, t, h, w = x.shape
    x = F.pad(x, (0, 0, 0, 0, -t % times, 0)).permute(0, 2, 3, 4, 1)
    x = x.view(b, -1, times, h // side, side, w // side, side, c).permute(0, 1, 3, 5, 7, 2, 4, 6)
    return x.reshape(*x.shape[:4], outputs, -1).mean(-1).permute(0, 4, 1, 2, 3)


def repeated(x, outputs, times):
    """Returns the shortcut of a level that enlarges x: repeated channels are distributed over (channel, frame, row, column)."""
    b, c, t, h, w = x.shape
    x = x.permute(0, 2, 3, 4, 1)[..., None].expand(b, t, h, w, c, outputs * times * 4 // c).reshape(b, t, h, w, outputs, times, 2, 2)
    return x.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(b, t * times, 2 * h, 2 * w, outputs)[:, times - 1:].permute(0, 4, 1, 2, 3)


class DownBlock(nn.Module):
    def __init__(self, inputs, outputs, blocks, side, time):
        super().__init__()
        self.resnets = nn.ModuleList(Resnet(inputs if k == 0 else outputs, outputs) for k in range(blocks))
        self.downsampler = Downsampler(outputs, time) if side == 2 else None
        self.shape = outputs, 2 if time else 1, side

    def forward(self, x):
        shortcut = averaged(x, *self.shape)
        for resnet in self.resnets:
            x = resnet(x)
        return (x if self.downsampler is None else self.downsampler(x)) + shortcut


class UpBlock(nn.Module):
    def __init__(self, inputs, outputs, blocks, grows, time):
        super().__init__()
        self.resnets = nn.ModuleList(Resnet(inputs if k == 0 else outputs, outputs) for k in range(blocks + 1))
        self.upsampler = Upsampler(outputs, time) if grows else None
        self.shape = outputs, 2 if time else 1

    def forward(self, x):
        entered = x
        for resnet in self.resnets:
            x = resnet(x)
        return x if self.upsampler is None else self.upsampler(x) + repeated(entered, *self.shape)


class Encoder(nn.Module):
    def __init__(self, dims, latents, blocks, times):
        super().__init__()
        self.conv_in = CausalConv(3 * PATCH * PATCH, dims[0], 3)
        last = len(dims) - 1
        self.down_blocks = nn.ModuleList(DownBlock(dims[max(0, i - 1)], d, blocks, 1 if i == last else 2, i < last and times[i]) for i, d in enumerate(dims))
        self.mid_block, self.norm_out, self.conv_out = MidBlock(dims[-1]), Norm(dims[-1]), CausalConv(dims[-1], 2 * latents, 3)

    def forward(self, x):
        x = self.conv_in(x)
        for block in self.down_blocks:
            x = block(x)
        return self.conv_out(NormSilu.apply(self.mid_block(x), self.norm_out.gamma, 2), True)


class Decoder(nn.Module):
    def __init__(self, dims, latents, blocks, times):
        super().__init__()
        dims = [dims[-1]] + dims[::-1]
        self.conv_in, self.mid_block = CausalConv(latents, dims[0], 3), MidBlock(dims[0])
        last = len(dims) - 2
        self.up_blocks = nn.ModuleList(UpBlock(dims[i], dims[i + 1], blocks, i < last, i < last and times[last - 1 - i]) for i in range(last + 1))
        self.norm_out, self.conv_out = Norm(dims[-1]), CausalConv(dims[-1], 3 * PATCH * PATCH, 3)

    def forward(self, z):
        x = self.mid_block(self.conv_in(z))
        for block in self.up_blocks:
            x = block(x)
        return self.conv_out(NormSilu.apply(x, self.norm_out.gamma, 2), True)


def patchify(x):
    """Returns x [B, 3, F, H, W] as [B, 3 * PATCH * PATCH, F, H / PATCH, W / PATCH], with channels in the order (color, column, row), in the memory layout of x."""
    last = x.is_contiguous(memory_format=torch.channels_last_3d)
    x = x.unflatten(4, (-1, PATCH)).unflatten(3, (-1, PATCH))               # [B, C, F, h, row, w, column]
    x = x.permute(0, 2, 3, 5, 1, 6, 4).flatten(4).permute(0, 4, 1, 2, 3)
    return x if last else x.contiguous()


def unpatchify(x):
    x = x.permute(0, 2, 3, 4, 1).unflatten(4, (3, PATCH, PATCH))            # [B, F, h, w, C, column, row]
    return x.permute(0, 4, 1, 2, 6, 3, 5).flatten(5).flatten(3, 4)


class Vae(nn.Module):
    def __init__(self, config=CONFIG):
        super().__init__()
        widths = lambda base: [base * m for m in config['dim_mult']]
        z, blocks, times = config['z_dim'], config['num_res_blocks'], config['temperal_downsample']
        self.encoder, self.decoder = Encoder(widths(config['base_dim']), z, blocks, times), Decoder(widths(config['decoder_base_dim']), z, blocks, times)
        self.quant_conv, self.post_quant_conv = CausalConv(2 * z, 2 * z, 1), CausalConv(z, z, 1)
        self.start(z)

    @torch.no_grad()
    def start(self, z):
        """Sets initial weights with which only the shortcuts act, and with which latents have little noise. If their noise had deviation 1, the decoder could not learn from
        them at first."""
        for module in self.modules():
            last = {Resnet: 'conv2', Attention: 'proj', Upsampler: 'resample'}.get(type(module))
            for p in getattr(module, last).parameters() if last else ():
                p.zero_()
        eye = torch.eye(2 * z).view(2 * z, 2 * z, 1, 1, 1)
        self.quant_conv.weight.copy_(torch.cat([2 * eye[:z], 0 * eye[z:]]))
        self.quant_conv.bias.copy_(torch.cat([torch.zeros(z), torch.full((z,), -5.0)]))
        self.post_quant_conv.weight.copy_(eye[:z, :z])
        self.post_quant_conv.bias.zero_()

    def encode(self, x):
        """Returns mean and log variance [B, z, T, h, w] of videos [B, 3, F, H, W] in -1..1."""
        return self.quant_conv(self.encoder(patchify(x))).chunk(2, 1)

    def decode(self, z):
        """Returns the videos [B, 3, F, H, W] of latents [B, z, T, h, w]. Values may lie outside -1..1."""
        return unpatchify(self.decoder(self.post_quant_conv(z)))


def latent_shape(size, frames):
    return LATENTS, (frames - 1) // FRAMES_A_LATENT + 1, size[0] // PIXELS_A_LATENT, size[1] // PIXELS_A_LATENT
