"""Trains the VAE on rendered clips: first encoder and decoder together, then the decoder alone on the latents of the frozen encoder."""
import argparse
import math
import os
import time

import torch

import cogvideox
import models
import shapes
from optim import Trainer


def psnr(a, b):
    """Returns the PSNR of each clip in dB, for values in -1..1."""
    return 10 * torch.log10(4 / ((a.float().clamp(-1, 1) - b.float()) ** 2).flatten(1).mean(1))


@torch.no_grad()
def evaluate(vae, device, clips, seed=990002):
    """Returns the mean PSNR of held-out 33x256x256 clips, and the standard deviation of their latents."""
    dtype = next(vae.parameters()).dtype
    values, spread, scenes = [], [], shapes.sample(seed, clips)
    for i in range(0, clips, 2):
        x = shapes.render(shapes.take(scenes, slice(i, i + 2)), device)
        z = vae.encode(x.to(dtype))[0]
        values.append(psnr(vae.decode(z), x))
        spread.append(z.float().std())
    return torch.cat(values).mean().item(), torch.stack(spread).mean().item()


def pick_layout(vae, device, dtype, batch):
    """Times a step with the weights in channels-first and in channels-last layout, and keeps the faster layout."""
    x, times = torch.randn(batch, 3, 17, 128, 128, device=device, dtype=dtype), {}

    def lay(last):
        for p in vae.parameters():
            if p.ndim > 3:
                formats = {4: torch.channels_last, 5: torch.channels_last_3d}
                p.data = p.data.contiguous(memory_format=formats[p.ndim] if last else torch.contiguous_format)

    for last in (False, True):
        lay(last)
        for k in range(6):
            if k == 2:
                torch.cuda.synchronize()
                begun = time.time()
            vae.decode(vae.encode(x)[0]).float().square().mean().backward()
            vae.zero_grad()
        torch.cuda.synchronize()
        times[last] = time.time() - begun
    print('vae: ms a pass, channels first and last:', [round(times[k] * 250) for k in (False, True)], flush=True)
    lay(times[True] < times[False])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', default='vae.safetensors')
    parser.add_argument('--start', default='', help='weights to go on from')
    parser.add_argument('--seconds', type=float, default=430, help='for everything, loading included')
    parser.add_argument('--joint', type=float, default=0.62, help='share of the time for encoder and decoder together')
    parser.add_argument('--full-only', action='store_true', help='no half-size clips')
    parser.add_argument('--noise', type=float, default=0.05, help='most noise on the latents that the decoder alone learns from')
    parser.add_argument('--kl', type=float, default=1e-3)
    parser.add_argument('--lr', type=float, default=1.5e-3)
    parser.add_argument('--batch', type=int, default=16, help='half-size clips a step; a quarter as many full-size ones')
    parser.add_argument('--test-clips', type=int, default=32)
    args = parser.parse_args()
    start = saved = time.time()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    dtype = torch.bfloat16 if device == 'cuda' else torch.float32
    torch.manual_seed(2)
    torch.backends.cudnn.benchmark = True
    vae = cogvideox.Vae()
    if args.start:
        vae.load_state_dict(models.load_float(args.start))
    vae.to(device)
    frozen = args.joint == 0
    encoder = {} if frozen else {n: p for n, p in vae.named_parameters() if n.startswith('encoder.')}
    named = {**encoder, **{n: p for n, p in vae.named_parameters() if n.startswith('decoder.')}}
    if device == 'cuda':
        exact = {n: p.detach().clone() for n, p in vae.named_parameters()}
        pick_layout(vae.to(dtype), device, dtype, args.batch)
        vae.float()
        for n, p in vae.named_parameters():
            p.data.copy_(exact[n])
    full = {n: p.detach().clone() for n, p in vae.named_parameters()}
    trainer = Trainer(named, ema=0.998)
    vae.to(dtype)
    if frozen:
        vae.encoder.requires_grad_(False)
    print(f'vae: {sum(p.numel() for p in vae.parameters()) / 1e6:.2f} M parameters', flush=True)
    scenes = shapes.sample(41, args.batch * 2000)
    order = torch.Generator().manual_seed(3)

    def save():
        models.save_half({**full, **trainer.averaged()}, args.out + '.part')
        os.replace(args.out + '.part', args.out)

    step, sums, begun, mark, clips = 0, torch.zeros(4, device=device), time.time(), time.time(), [0, 0]
    length = max(1.0, args.seconds - (begun - start) - (4 + args.test_clips * 0.15 if device == 'cuda' else 1))
    while (done := (time.time() - begun) / length) < 1:
        if not frozen and done >= args.joint:                               # from here on, the encoder does not change
            trainer.push(trainer.ema)
            full.update({n: v.clone() for n, v in trainer.averaged().items()})
            vae.encoder.requires_grad_(False)
            decoder = {n: p for n, p in vae.named_parameters() if n.startswith('decoder.')}
            trainer, frozen = Trainer(decoder, ema=0.998), True
            trainer.master = [full[n].clone() for n in decoder]
            trainer.ema = [m.clone() for m in trainer.master]
            print(f'vae {step}: encoder frozen', flush=True)
        big = args.full_only or step % 2 == 1
        n = max(1, args.batch // 4) if big else args.batch
        some = shapes.take(scenes, torch.randint(0, len(scenes['caption']), (n,), generator=order).tolist())
        first = int(torch.randint(0, 17, (1,), generator=order))
        with torch.no_grad():
            x = shapes.render(some, device, 256, range(first, first + 17)) if big else shapes.render(some, device, 128, range(0, 33, 2))
        if frozen:
            with torch.no_grad():
                z = vae.encode(x.to(dtype))[0]
                z = z + torch.randn_like(z) * (args.noise * torch.rand(n, 1, 1, 1, 1, device=device, dtype=dtype))
            kl = torch.zeros((), device=device)
        else:
            mean, logvar = vae.encode(x.to(dtype))
            z, mean, logvar = mean + torch.randn_like(mean) * (0.5 * logvar).exp(), mean.float(), logvar.float()
            kl = 0.5 * (mean * mean + logvar.exp() - 1 - logvar).mean()
        y = vae.decode(z).float()
        e = y - x
        l1, mse = e.abs().mean(), (e * e).mean()
        edges = (e[..., 1:] - e[..., :-1]).abs().mean() + (e[..., 1:, :] - e[..., :-1, :]).abs().mean()
        (l1 + 4 * mse + 0.3 * edges + args.kl * kl).backward()
        if frozen:
            part = (done - args.joint) / (1 - args.joint)
            lr = args.lr * min(1, (trainer.steps + 1) / 60) * min(1.0, 0.01 + 1.3 * (1 - part))
        else:
            part = done / args.joint
            lr = args.lr * min(1, (step + 1) / 60) * min(1.0, 0.2 + 2 * (1 - part))
        trainer.step(lr)
        step += 1
        clips[big] += n
        sums += torch.stack([l1.detach(), mse.detach(), edges.detach(), kl.detach()])
        every = 200 if device == 'cuda' else 2
        if step % every == 0:
            s = (sums / every).tolist()
            sums.zero_()
            print(f'vae {step} {time.time() - start:.0f} s l1 {s[0]:.4f} psnr~{10 * math.log10(4 / s[1]):.2f} edges {s[2]:.4f} kl {s[3]:.3f} '
                  f'lr {lr:.1e} {(time.time() - mark) / every * 1000:.0f} ms/step', flush=True)
            mark = time.time()
        if time.time() - saved > 60:
            save()
            saved = time.time()
    trainer.push(trainer.ema)
    save()
    value, spread = evaluate(vae, device, args.test_clips)
    print(f'vae: {step} steps, {clips[0]} half-size and {clips[1]} full-size clips; {value:.2f} dB on {args.test_clips} held-out clips of '
          f'33x256x256 ({dtype}), latent std {spread:.3f}, {time.time() - start:.0f} s', flush=True)


if __name__ == '__main__':
    main()
