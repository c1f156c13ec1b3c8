"""The tiny pipeline's parts: tokenizer, text encoder, transformer, VAE, scheduler, rotary tables, and a batched sampler."""
import torch
from torch import nn
import diffusers
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXTransformer3DModel
from diffusers.models.embeddings import get_1d_rotary_pos_embed
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5EncoderModel

import shapes
import unigram

diffusers.logging.set_verbosity_error()
TEXT_TOKENS, LATENT_CHANNELS, SIDE = 32, 8, 256


def train_tokenizer(path):
    unigram.train(path, shapes.sample(100, 12000)['caption'], 512)


def tokenize(tokenizer, texts):
    ids = torch.zeros(len(texts), TEXT_TOKENS, dtype=torch.long)
    for row, pieces in zip(ids, tokenizer.encode(list(texts))):
        pieces = pieces[:TEXT_TOKENS - 1] + [1]
        row[:len(pieces)] = torch.tensor(pieces)
    return ids


def make_vae(scaling_factor=1.0):
    # With these sample sizes, the tile lengths in diffusers are whole numbers, so its tiled decode returns frames of
    # the right size.
    return AutoencoderKLCogVideoX(
        in_channels=3, out_channels=3, block_out_channels=(16, 24, 48, 64), layers_per_block=1, latent_channels=LATENT_CHANNELS,
        norm_num_groups=8, sample_height=192, sample_width=160, scaling_factor=scaling_factor, temporal_compression_ratio=4)


def make_text_encoder(vocabulary):
    return T5EncoderModel(T5Config(
        vocab_size=vocabulary, d_model=128, d_kv=32, d_ff=256, num_layers=3, num_heads=4, feed_forward_proj='gated-gelu', dropout_rate=0.0,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, tie_word_embeddings=False, is_encoder_decoder=False, use_cache=False))


def make_denoiser():
    model = CogVideoXTransformer3DModel(
        num_attention_heads=4, attention_head_dim=64, in_channels=LATENT_CHANNELS, out_channels=LATENT_CHANNELS, time_embed_dim=64,
        text_embed_dim=128, num_layers=6, sample_width=SIDE // 8, sample_height=SIDE // 8, sample_frames=shapes.FRAMES, patch_size=2,
        temporal_compression_ratio=4, max_text_seq_length=TEXT_TOKENS, use_rotary_positional_embeddings=True)
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


def make_scheduler():
    return CogVideoXDDIMScheduler(
        num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012, beta_schedule='scaled_linear', clip_sample=False,
        set_alpha_to_one=True, steps_offset=0, prediction_type='v_prediction', timestep_spacing='trailing',
        rescale_betas_zero_snr=True, snr_shift_scale=3.0)


def rotary(device, half=False):
    """Returns the pipeline's rotary table for full-size clips. With half, returns the table for clips of half the size with every second frame, stretched over the
        same range of positions."""
    grid = torch.arange(SIDE // 16, dtype=torch.float32)
    time = torch.arange(1 + (shapes.FRAMES - 1) // 4, dtype=torch.float32)
    if half:
        grid, time = grid[::2] + 0.5, time[::2]
    parts = [get_1d_rotary_pos_embed(dim, pos, use_real=True) for dim, pos in ((16, time), (24, grid), (24, grid))]
    nt, ns = len(time), len(grid)
    table = []
    for k in (0, 1):                                                        # cosines, sines
        t, h, w = (p[k] for p in parts)
        table.append(torch.cat([t[:, None, None].expand(nt, ns, ns, 16), h[None, :, None].expand(nt, ns, ns, 24),
                                w[None, None].expand(nt, ns, ns, 24)], -1).reshape(nt * ns * ns, 64).to(device))
    return tuple(table)


def latent_shape(half=False):
    return (5, LATENT_CHANNELS, SIDE // 16, SIDE // 16) if half else (9, LATENT_CHANNELS, SIDE // 8, SIDE // 8)


@torch.no_grad()
def sample_latents(denoiser, text_encoder, ids, empty, half, guidance=6.0, steps=25, seed=1, batch=50):
    """Runs DDIM with guidance for many prompts. Returns scaled latents [n, T, C, H, W]."""
    device, dtype = empty.device, next(denoiser.parameters()).dtype
    table, scheduler, out = rotary(device, half), make_scheduler(), []
    generator = torch.Generator().manual_seed(seed)
    for first in range(0, len(ids), batch):
        cond = ids[first:first + batch].to(device)
        n = len(cond)
        text = text_encoder(torch.cat([empty.expand(n, -1), cond]))[0].to(dtype)
        x = torch.randn(n, *latent_shape(half), generator=generator).to(device)
        scheduler.set_timesteps(steps)
        for t in scheduler.timesteps:
            v = denoiser(hidden_states=torch.cat([x, x]).to(dtype), encoder_hidden_states=text, timestep=t.to(device).expand(2 * n),
                         image_rotary_emb=table, return_dict=False)[0].float()
            u, c = v.chunk(2)
            x = scheduler.step(u + guidance * (c - u), t, x, return_dict=False)[0]
        out.append(x)
    return torch.cat(out)


@torch.no_grad()
def decode(vae, latents, scaling_factor, batch=4):
    """Decodes scaled latents [n, T, C, H, W], a few clips at a time. Yields videos [n, 3, F, H, W] in -1..1."""
    dtype = next(vae.parameters()).dtype
    for first in range(0, len(latents), batch):
        z = latents[first:first + batch].transpose(1, 2) / scaling_factor
        yield vae.decode(z.to(dtype)).sample.float().clamp(-1, 1)


def save_half(state, path):
    save_file({k: v.detach().to('cpu', torch.float16).contiguous() for k, v in state.items()}, path)


def load_float(path):
    return {k: v.float() for k, v in load_file(path).items()}
