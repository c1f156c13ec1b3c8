"""Trains the text encoder and the transformer together on cached latents of rendered clips: first at half size (--half), then at full size."""
import argparse
import os
import time

import torch

import cogvideox
import judge as judging
import models
import shapes
import unigram
from attention import pick_attention
from optim import Trainer
from png import write_png


def make_latents(vae, tokenizer, half, clips, seconds, seed, device):
    """Renders and encodes as many clips as the time allows. Returns their latents [n, T, C, H, W] on the device, and the token ids of their captions."""
    start, dtype = time.time(), next(vae.parameters()).dtype
    scenes = shapes.sample(seed, clips)
    ids = models.tokenize(tokenizer, scenes['caption'])
    print(f'latents: scenes {time.time() - start:.1f} s; {int((ids[:, -1] != 0).sum())} captions too long', flush=True)
    z, n, batch = torch.empty(clips, *models.latent_shape(half), dtype=dtype, device=device), 0, 64 if half else 16
    with torch.no_grad():
        while n < clips and time.time() - start < seconds:
            some = shapes.take(scenes, slice(n, n + batch))
            x = shapes.render(some, device, 128, range(0, 33, 2)) if half else shapes.render(some, device)
            out = vae.encode(x.to(dtype))[0].transpose(1, 2)
            z[n:n + len(out)] = out
            n += len(out)
            if device == 'cuda' and n % (batch * 8) == 0:
                torch.cuda.synchronize()
    print(f'latents: {n} clips in {time.time() - start:.1f} s', flush=True)
    return z[:n], ids[:n].to(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--work', default='work', help='folder with spiece.model, vae.safetensors, judge.safetensors; weights are written there')
    parser.add_argument('--copy', default='', help='folder that gets a copy of the weights and sample sheets at every save')
    parser.add_argument('--half', action='store_true', help='half-size clips of every second frame')
    parser.add_argument('--seconds', type=float, default=500, help='for everything, loading included')
    parser.add_argument('--clips', type=int, default=200000)
    parser.add_argument('--latent-seconds', type=float, default=80)
    parser.add_argument('--seed', type=int, default=51, help='of the cached clips')
    parser.add_argument('--batch', type=int, default=256)
    parser.add_argument('--lr', type=float, default=1.5e-3)
    parser.add_argument('--hold', type=float, default=1.0, help='share of the time before the rate starts to fall to zero')
    parser.add_argument('--ema', type=float, default=0.999)
    parser.add_argument('--no-compile', action='store_true')
    parser.add_argument('--test-prompts', type=int, default=200)
    args = parser.parse_args()
    start = time.time()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    dtype = torch.bfloat16 if device == 'cuda' else torch.float32
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    at = lambda name: os.path.join(args.work, name)
    tokenizer = unigram.load(at('spiece.model'))
    vae = cogvideox.Vae()
    vae.load_state_dict(models.load_float(at('vae.safetensors')))
    vae.to(device, dtype).requires_grad_(False)
    judge = judging.load_judge(at('judge.safetensors'), device)
    cache = at(f"latents-{'half' if args.half else 'full'}-{args.seed}.pt")
    if os.path.exists(cache):
        z, ids = (t.to(device) for t in torch.load(cache, mmap=True))
        print(f'latents: {len(z)} clips from {cache}', flush=True)
    else:
        z, ids = make_latents(vae, tokenizer, args.half, args.clips, args.latent_seconds, args.seed, device)
        torch.save((z.cpu(), ids.cpu()), cache)
    if os.path.exists(at('scale.txt')):                                     # the first stage has fixed the scale
        scale = float(open(at('scale.txt')).read())
    else:
        scale = 1 / z[:2000].float().std().item()
        open(at('scale.txt'), 'w').write(f'{scale}\n')
    part = z[:1000].float() * scale
    print(f'scaling factor {scale:.4f}; here std {part.std():.3f}, by channel', [round(v, 2) for v in part.std((0, 1, 3, 4)).tolist()],
          'mean', [round(v, 2) for v in part.mean((0, 1, 3, 4)).tolist()], flush=True)
    z.mul_(scale)

    denoiser, text_encoder = models.make_denoiser(), models.make_text_encoder(tokenizer.vocab_size())
    if os.path.exists(at('denoiser.safetensors')):
        denoiser.load_state_dict(models.load_float(at('denoiser.safetensors')))
        text_encoder.load_state_dict(models.load_float(at('text_encoder.safetensors')))
    denoiser.to(device)
    text_encoder.to(device)
    named = {'denoiser.' + n: p for n, p in denoiser.named_parameters()} | {'text_encoder.' + n: p for n, p in text_encoder.named_parameters()}
    muon = [n for n, p in named.items() if p.ndim == 2 and 'block' in n and 'relative' not in n and ('to_' in n or '.ff.' in n or n.startswith('text'))]
    trainer = Trainer(named, muon, ema=args.ema)
    print(f'denoiser {sum(p.numel() for p in denoiser.parameters()) / 1e6:.2f} M, text encoder {sum(p.numel() for p in text_encoder.parameters()) / 1e6:.2f} M; '
          f'muon on {len(muon)} matrices', flush=True)
    denoiser.to(dtype)
    text_encoder.to(dtype)
    state = at('state.pt')
    if os.path.exists(state):
        trainer.load_state(torch.load(state, map_location=device))
        print(f'resumed after {trainer.steps} steps', flush=True)
    table, empty = models.rotary(device, args.half), models.tokenize(tokenizer, ['']).to(device)
    blocks = None
    if device == 'cuda':
        pick_attention((args.batch, 4, len(table[0]) + models.TEXT_TOKENS, 64), device)
        if not args.no_compile:
            torch._dynamo.config.recompile_limit = 64
            blocks = [torch.compile(block, dynamic=False) for block in denoiser.transformer_blocks]

    def save(final=False):
        weights = trainer.averaged()
        for folder in filter(None, (args.work, args.copy)):
            for name in ('denoiser', 'text_encoder'):
                path = os.path.join(folder, name + '.safetensors')
                models.save_half({k[len(name) + 1:]: v for k, v in weights.items() if k.startswith(name + '.')}, path + '.part')
                os.replace(path + '.part', path)
            open(os.path.join(folder, 'scale.txt'), 'w').write(f'{scale}\n')
        if final:
            torch.save(trainer.state(), state + '.part')
            os.replace(state + '.part', state)

    def score(tag):
        """Makes clips of new prompts. Prints how well the classifier's reading agrees with the prompts, and saves a sheet of the first twelve clips."""
        begun = time.time()
        trainer.push(trainer.ema)
        scenes = shapes.sample(770077, args.test_prompts, complete=True)
        x = models.sample_latents(denoiser, text_encoder, models.tokenize(tokenizer, scenes['caption']), empty, args.half)
        right, rows, n = {name: 0 for name in shapes.ATTRIBUTES}, [], 0
        for video in models.decode(vae, x, scale, 16 if args.half else 4):
            seen = judging.read(judge, video)
            for name in right:
                right[name] += (seen[name] == scenes[name][n:n + len(video)]).sum().item()
            for one in video[:max(0, 12 - n)]:
                pick = one[:, torch.linspace(0, one.shape[1] - 1, 5).long()]
                pick = torch.nn.functional.interpolate(pick.transpose(0, 1), size=(128, 128), mode='area')
                rows.append(pick.permute(2, 0, 3, 1).reshape(128, 5 * 128, 3))
            n += len(video)
        sheet = torch.cat([torch.cat(rows[0:6]), torch.cat(rows[6:12])], 1) if len(rows) == 12 else torch.cat(rows)
        write_png(os.path.join(args.copy or args.work, f'sheet-{tag}.png'), sheet.permute(2, 0, 1))
        print(f'scores {tag}: {right} of {n}, latent std {x.std():.3f}, {time.time() - begun:.1f} s', flush=True)
        trainer.push(trainer.master)

    alphas = cogvideox.Schedule(device).alphas
    generator = torch.Generator(device).manual_seed(args.seed + 1000 * trainer.steps)
    loss_sum, bins = torch.zeros((), device=device), torch.zeros(4, 2, device=device)
    step, begun = 0, time.time()
    mark = saved = begun
    length = max(1.0, args.seconds - (begun - start) - (12 if device == 'cuda' else 0))
    every, b = (500 if args.half else 200) if device == 'cuda' else 2, args.batch
    while (done := (time.time() - begun) / length) < 1:
        index = torch.randint(0, len(z), (b,), generator=generator, device=device)
        x0, caption = z[index].float(), ids[index]
        caption = torch.where(torch.rand(b, 1, generator=generator, device=device) < 0.1, empty, caption)
        u = (torch.randperm(b, generator=generator, device=device) + torch.rand(b, generator=generator, device=device)) / b
        t = (u * 1000).long().clamp(0, 999)
        a = alphas[t].view(-1, 1, 1, 1, 1)
        noise = torch.randn(x0.shape, generator=generator, device=device)
        xt, target = a.sqrt() * x0 + (1 - a).sqrt() * noise, a.sqrt() * noise - (1 - a).sqrt() * x0
        v = denoiser(xt.to(dtype), text_encoder(caption), t, table, blocks)
        errors = ((v.float() - target) ** 2).flatten(1).mean(1)
        loss = errors.mean()
        loss.backward()
        rate = min(1, (step + 1) / 150) * (1 if done < args.hold else max(0.0, (1 - done) / (1 - args.hold)))
        trainer.step(args.lr * 0.67 * rate, args.lr * rate)
        step += 1
        loss_sum += loss.detach()
        quarter = (t // 250).clamp(0, 3)
        bins[:, 0].index_add_(0, quarter, errors.detach())
        bins[:, 1].index_add_(0, quarter, torch.ones_like(errors))
        if step % every == 0:
            q = (bins[:, 0] / bins[:, 1].clamp_min(1)).tolist()
            print(f'denoiser {step} {time.time() - start:.0f} s loss {loss_sum.item() / every:.4f} by quarter of t {[round(e, 4) for e in q]} rate {rate:.3f} '
                  f'{(time.time() - mark) / every * 1000:.1f} ms/step', flush=True)
            loss_sum.zero_()
            bins.zero_()
            mark = time.time()
        if time.time() - saved > 60:
            save()
            saved = time.time()
    print(f'denoiser: {step} steps of {b} = {step * b} clips in {time.time() - begun:.0f} s', flush=True)
    save(final=True)
    score('half' if args.half else 'full')


if __name__ == '__main__':
    main()
