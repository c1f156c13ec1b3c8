"""Trains the VAE on crops of rendered clips, and measures it on clips that it has not seen."""
import argparse
import json
import math
import os
import sys
import time

import torch
from safetensors.torch import load_file, save_file

import data
import vae as vaes

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tiny-training'))
from optim import Trainer  # noqa: E402
from png import write_png  # noqa: E402

VIEWS = ((256, 256), (480, 832))    # (height, width) of the frames from which crops are taken
LONGEST = 81                        # number of frames of the clips from which crops are taken
TOGETHER = 4                        # number of steps whose crops are rendered at once, because the many small kernels take as long for few crops as for many


def psnr(a, b):
    """Returns the PSNR of each clip in dB, for values in -1..1."""
    return 10 * torch.log10(4 / ((a.float().clamp(-1, 1) - b.float()) ** 2).flatten(1).mean(1))


class Crops:
    """Draws random crops of random scenes."""

    def __init__(self, scenes, device, texture):
        self.device, self.texture = device, texture
        self.pools = [data.sample(100 + i, scenes, w / h) for i, (h, w) in enumerate(VIEWS)]
        self.random = torch.Generator().manual_seed(4)

    def draw(self, n, frames, side, view=0):
        """Returns n crops [n, 3, frames, side, side] of frames of the size VIEWS[view]."""
        pool, size = self.pools[view], VIEWS[view]
        pick = lambda most, m=n: torch.randint(0, most, (m,), generator=self.random)
        scenes = data.take(pool, pick(len(pool['caption'])).tolist())
        corner = torch.stack([pick(size[0] - side + 1), pick(size[1] - side + 1)], 1)
        return data.render(scenes, size, frames, self.device, (corner, (side, side)), int(pick(LONGEST - frames, 1)), LONGEST, self.texture)


def run_step(model, x, kl_weight):
    """Runs a forward and a backward pass. Returns the terms of the loss."""
    with torch.set_grad_enabled(model.quant_conv.weight.requires_grad):
        mean, logvar = (t.float() for t in model.encode(x))
    logvar = logvar.clamp(-20, 10)
    z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
    kl = 0.5 * (mean * mean + logvar.exp() - 1 - logvar).mean()
    e = model.decode(z.to(x.dtype)).float() - x.float()
    l1, mse = e.abs().mean(), (e * e).mean()
    edges = (e[..., 1:] - e[..., :-1]).abs().mean() + (e[..., 1:, :] - e[..., :-1, :]).abs().mean()
    (l1 + 2 * mse + 0.3 * edges + kl_weight * kl).backward()
    return torch.stack([l1, mse, edges, kl]).detach()


def lay(model, last):
    """Converts the weights of convolutions to channels-last layout if `last`, otherwise to the usual layout."""
    for p in model.parameters():
        if p.ndim >= 4:
            formats = {4: torch.channels_last, 5: torch.channels_last_3d}
            p.data = p.data.contiguous(memory_format=formats[p.ndim] if last else torch.contiguous_format)


def place(x, last):
    return x.contiguous(memory_format=torch.channels_last_3d) if last else x.contiguous()


def make_trainer(model, exact):
    """Returns a trainer that begins with the weights `exact`, in the memory layout of the model's weights. Muon updates all convolutions except the first and last ones."""
    named, ends = {n: p for n, p in model.named_parameters() if p.requires_grad}, ('conv_in', 'coder.conv_out', 'quant_conv')
    trainer = Trainer(named, [n for n, p in named.items() if p.ndim >= 4 and 'gamma' not in n and not any(e in n for e in ends)], ema=0.998)
    copy = lambda p, values: torch.empty_like(p, dtype=torch.float32).copy_(values)
    trainer.master = [copy(p, exact[n]) for n, p in named.items()]
    trainer.ema = [m.clone() for m in trainer.master]
    trainer.moment = [torch.zeros_like(m) for m in trainer.master]
    trainer.second = [torch.zeros_like(trainer.master[i]) for i in trainer.ad]
    return trainer


@torch.no_grad()
def evaluate(model, device, dtype, last, sizes, texture, seed=990002):
    """Returns the PSNR for each size, the mean and the standard deviation of each latent channel, and pairs (original, decoded) for a sheet.

    sizes: a list of (height, width, frames, number of clips). Training does not see these clips."""
    values, total, square, count, pairs = {}, 0, 0, 0, []
    for height, width, frames, clips in sizes:
        scenes, some = data.sample(seed, clips, width / height), []
        for i in range(clips):
            x = data.render(data.take(scenes, slice(i, i + 1)), (height, width), frames, device, texture=texture)
            z = model.encode(place(x.to(dtype), last))[0].float()
            y = model.decode(place(z.to(dtype), last))
            some.append(psnr(y, x))
            total, square, count = total + z.sum((0, 2, 3, 4)).double(), square + (z * z).sum((0, 2, 3, 4)).double(), count + z[0, 0].numel()
            if i < 6:
                pairs.append((x[0, :, ::max(1, frames // 3), :256, :256].cpu(), y[0, :, ::max(1, frames // 3), :256, :256].float().clamp(-1, 1).cpu()))
        some = torch.cat(some)
        values[f'{width}x{height}x{frames}'] = {'clips': clips, 'mean_db': round(some.mean().item(), 2), 'least_db': round(some.min().item(), 2)}
        print(f'PSNR {width}x{height}x{frames}: mean {some.mean():.2f} dB, least {some.min():.2f} dB of {clips} clips', flush=True)
    mean = total / count
    return values, mean.tolist(), (square / count - mean * mean).sqrt().tolist(), pairs


def save(weights, folder, **fields):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, 'diffusion_pytorch_model.safetensors')
    save_file({k: v.detach().to('cpu', torch.float16).contiguous() for k, v in weights.items()}, path + '.part')
    os.replace(path + '.part', path)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
        json.dump({**vaes.CONFIG, **fields}, f, indent=1)
        f.write('\n')


def load(folder, device, dtype):
    """Returns a saved VAE, and its latents' mean and deviation [1, C, 1, 1, 1]."""
    with open(os.path.join(folder, 'config.json')) as f:
        config = json.load(f)
    model = vaes.Vae(config)
    model.load_state_dict({k: v.float() for k, v in load_file(os.path.join(folder, 'diffusion_pytorch_model.safetensors')).items()})
    stats = (torch.tensor(config[k], device=device).view(1, -1, 1, 1, 1) for k in ('latents_mean', 'latents_std'))
    return model.to(device, dtype).requires_grad_(False), *stats


def timed(name, work):
    """Runs work() three times on the GPU, and prints how long the last run took. Returns the result of the last run."""
    for _ in range(3):
        torch.cuda.synchronize()
        begun = time.time()
        made = work()
        torch.cuda.synchronize()
    print(f'{name}: {(time.time() - begun) * 1000:.0f} ms, peak {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB', flush=True)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', default='work', help='folder for vae/, vae-sheet.png and vae-report.json')
    parser.add_argument('--start', default='', help='folder of a VAE to go on from')
    parser.add_argument('--seconds', type=float, default=480, help='for everything, loading and measuring included')
    parser.add_argument('--decoder-only', action='store_true', help='keep the encoder of --start, so that the transformer still fits')
    parser.add_argument('--batch', type=int, default=12, help='crops a step')
    parser.add_argument('--side', type=int, default=128)
    parser.add_argument('--frames', type=int, default=17)
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--kl', type=float, default=5e-4)
    parser.add_argument('--widths', type=int, nargs=2, default=(vaes.CONFIG['base_dim'], vaes.CONFIG['decoder_base_dim']),
                        help='base_dim of the encoder and of the decoder')
    parser.add_argument('--scenes', type=int, default=4000, help='different scenes of each view')
    parser.add_argument('--texture', type=int, default=512)
    parser.add_argument('--no-compile', action='store_true')
    parser.add_argument('--toy', action='store_true', help='a quick test of the script')
    args = parser.parse_args()
    start = saved = time.time()
    if args.toy:
        torch.set_num_threads(1)
        args.batch, args.side, args.frames, args.scenes, args.texture, args.widths = 2, 32, 5, 8, 64, (8, 8)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    dtype = torch.bfloat16 if device == 'cuda' else torch.float32
    torch.manual_seed(2)
    torch.backends.cudnn.benchmark = True
    crops = Crops(args.scenes, device, args.texture)
    vaes.CONFIG.update(base_dim=args.widths[0], decoder_base_dim=args.widths[1])
    model = vaes.Vae()
    if args.start:
        model = load(args.start, 'cpu', torch.float32)[0].requires_grad_(True)
    model.to(device)
    if args.decoder_only:
        model.encoder.requires_grad_(False)
        model.quant_conv.requires_grad_(False)
    count = {k: sum(p.numel() for p in getattr(model, k).parameters()) / 1e6 for k in ('encoder', 'decoder')}
    print(f'VAE: {count["encoder"]:.2f} M parameters in the encoder, {count["decoder"]:.2f} M in the decoder; scenes after {time.time() - start:.1f} s', flush=True)
    exact = {n: p.detach().clone() for n, p in model.named_parameters()}
    last = False
    if device == 'cuda':
        model.to(dtype)
        if not args.no_compile:
            print(f'compiled: norms {vaes.compile_norms(device, dtype)}, faces {data.compile_faces(device)}; {time.time() - start:.1f} s', flush=True)
        last = True                 # a step takes 51 ms in channels-last layout, and 80 ms in channels-first layout
        lay(model, last)
        made = timed('rendering', lambda: crops.draw(TOGETHER * args.batch, args.frames, args.side))
        sample = place(made[:args.batch].to(dtype), last)
        timed('a step', lambda: run_step(model, sample, args.kl))
        model.zero_grad()
    trainer = make_trainer(model, exact)
    weights = lambda: {**exact, **trainer.averaged()}
    trainer.keep()
    reserve = 4 if args.toy else 45
    length = max(1.0, args.seconds - (time.time() - start) - reserve)
    sums, seen, step, marked, rate = torch.zeros(4, device=device), 0, 0, 0, args.lr
    begun = mark = time.time()
    while (done := (time.time() - begun) / length) < 1:
        if step % TOGETHER == 0:    # the two views take turns. Every fourth turn of a view has half as many clips of twice the length
            turn = step // TOGETHER
            n, frames = (max(1, args.batch // 2), 2 * args.frames - 1) if turn // 2 % 4 == 3 else (args.batch, args.frames)
            crop = place(crops.draw(TOGETHER * n, frames, args.side, turn % 2).to(dtype), last)
        k = step % TOGETHER
        x = crop[k * n:(k + 1) * n]
        sums += run_step(model, x, args.kl)
        trainer.step(rate * min(1, (step + 1) / 60) * min(1.0, 0.01 + 1.6 * (1 - done)))
        step, seen = step + 1, seen + n
        if device == 'cuda' and step % 8 == 0:
            torch.cuda.synchronize()                                        # wait for the GPU, so that the clock counts its work
        if time.time() - mark > 10 or args.toy:
            l1, mse, edges, kl = (sums / (step - marked)).tolist()
            print(f'{time.time() - start:.0f} s, step {step}, {seen} clips, L1 {l1:.4f}, PSNR {10 * math.log10(4 / max(mse, 1e-9)):.2f} dB, edges {edges:.4f}, '
                  f'KL {kl:.2f}, {(time.time() - mark) / (step - marked) * 1000:.0f} ms a step', flush=True)
            if math.isfinite(l1) and trainer.size().isfinite():
                trainer.keep()
                if time.time() - saved > 120:
                    save(weights(), os.path.join(args.out, 'vae'))
                    saved = time.time()
            else:
                print('not finite: back to the last good weights, at half the rate', flush=True)
                trainer.go_back()
                rate *= 0.5
            sums.zero_()
            mark, marked = time.time(), step
    if not trainer.size().isfinite():
        trainer.go_back()
    trainer.push(trainer.ema)
    save(weights(), os.path.join(args.out, 'vae'))
    print(f'trained {step} steps, {seen} clips, {time.time() - start:.0f} s', flush=True)
    sizes = [(32, 48, 5, 2)] if args.toy else [(256, 256, 33, 32), (480, 832, 49, 6)]
    torch.backends.cudnn.benchmark = False                                  # cuDNN's trials of algorithms take long at these sizes
    values, mean, deviation, pairs = evaluate(model, device, dtype, last, sizes, args.texture)
    if args.decoder_only:           # the encoder has not changed, so keep the statistics of its latents
        mean, deviation = (t.flatten().tolist() for t in load(args.start, 'cpu', torch.float32)[1:])
    save(weights(), os.path.join(args.out, 'vae'), latents_mean=[round(v, 4) for v in mean], latents_std=[round(v, 4) for v in deviation])
    strip = lambda v: torch.cat(list(v[:, :3].unbind(1)), 2)
    write_png(os.path.join(args.out, 'vae-sheet.png'), torch.cat([torch.cat([strip(a), strip(b)], 2) for a, b in pairs if a.shape[-1] == pairs[0][0].shape[-1]], 1))
    with open(os.path.join(args.out, 'vae-report.json'), 'w') as f:
        json.dump({'steps': step, 'clips': seen, 'seconds': round(time.time() - start), 'psnr': values, 'latents_mean': mean, 'latents_std': deviation}, f, indent=1)
    print('latents: mean', [round(v, 2) for v in mean], 'std', [round(v, 2) for v in deviation], f'{time.time() - start:.0f} s', flush=True)


if __name__ == '__main__':
    main()
