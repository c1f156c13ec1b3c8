"""Trains the transformer and its text encoder, one stage at a time, on latents of rendered clips."""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import data
import model as models
import ranks as together
import scenes
import train_vae
import vae as vaes

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tiny-training'))
import unigram  # noqa: E402
from attention import pick_attention  # noqa: E402
from optim import Trainer  # noqa: E402
from png import write_png  # noqa: E402

# Settings of each stage. sizes: (height, width, frames, clips per step). lr: learning rate. shift: flow shift. hold: part of the time after which the rate falls.
# end: rate at the end, as a factor of lr. fill: seconds for filling the pools. fresh: part of the remaining time for new clips. reserve: seconds for drawing samples.
STAGES = {
    1: dict(sizes=[(256, 256, 17, 96)], lr=1.5e-3, shift=3.0, hold=1.0, end=1.0, fill=30, fresh=0.25, reserve=12),
    2: dict(sizes=[(256, 256, 33, 64), (240, 416, 33, 40)], lr=1.2e-3, shift=3.0, hold=1.0, end=1.0, fill=40, fresh=0.25, reserve=15),
    3: dict(sizes=[(320, 576, 49, 12), (240, 416, 33, 40)], lr=1e-3, shift=4.0, hold=1.0, end=1.0, fill=40, fresh=0.2, reserve=25),
    4: dict(sizes=[(480, 832, 49, 6)], lr=8e-4, shift=5.0, hold=1.0, end=1.0, fill=45, fresh=0.2, reserve=45),
    5: dict(sizes=[(480, 832, 49, 6)], lr=6e-4, shift=5.0, hold=0.1, end=0.02, fill=45, fresh=0.2, reserve=45),
    6: dict(sizes=[(480, 832, 81, 3), (480, 832, 49, 6)], lr=4e-4, shift=5.0, hold=0.1, end=0.02, fill=60, fresh=0.15, reserve=70),
}
TOY = dict(sizes=[(32, 48, 9, 2), (32, 32, 5, 3)], lr=1e-3, shift=3.0, hold=0.5, end=0.1, fill=2, fresh=0.3, reserve=8)
LARGEST_FILE = 15_500_000           # bytes
POOL_BYTES = 24 << 30               # memory for the latents of all sizes
HELD_OUT = 32                       # clips that training does not see, for each size
TEST_SEED = 880_000_001             # seeds of training clips are smaller


# ---- files --------------------------------------------------------------------------------------------------------

def in_files(weights):
    """Returns the weights in fp16, divided into dicts of at most LARGEST_FILE bytes."""
    parts, size = [{}], 0
    for name, w in weights.items():
        if size + 2 * w.numel() > LARGEST_FILE:
            parts.append({})
            size = 0
        parts[-1][name] = w.detach().to('cpu', torch.float16).contiguous()
        size += 2 * w.numel()
    return parts


def save_weights(weights, folder):
    """Writes weights to the files weights-1.safetensors, weights-2.safetensors and so on."""
    for k, part in enumerate(in_files(weights), 1):
        path = os.path.join(folder, f'weights-{k}.safetensors')
        save_file(part, path + '.part')
        os.replace(path + '.part', path)


def load_weights(folder):
    """Returns the weights of a folder in fp32; an empty dict if the folder has none."""
    weights, k = {}, 1
    while os.path.exists(path := os.path.join(folder, f'weights-{k}.safetensors')):
        weights.update({n: w.float() for n, w in load_file(path).items()})
        k += 1
    return weights


def part_of(weights, name):
    return {k[len(name) + 1:]: w for k, w in weights.items() if k.startswith(name + '.')}


# ---- latents ------------------------------------------------------------------------------------------------------

class Maker:
    """Renders clips, encodes them to latents, and decodes latents."""

    def __init__(self, vae, mean, deviation, tokenizer, texture, last):
        self.vae, self.mean, self.deviation, self.tokenizer, self.texture, self.last = vae, mean, deviation, tokenizer, texture, last
        self.dtype, self.device = next(vae.parameters()).dtype, mean.device

    @torch.no_grad()
    def make(self, seed, size, frames, n):
        """Renders n new clips. Returns their normalized latents [n, C, F, h, w] in fp16, and the ids [n, L] of their captions."""
        scenes = data.sample(seed, n, size[1] / size[0])
        at_once = max(1, 36_000_000 // (size[0] * size[1] * frames))
        parts = []
        for k in range(0, n, at_once):
            x = data.render(data.take(scenes, slice(k, k + at_once)), size, frames, self.device, texture=self.texture * (1 if max(size) <= 576 else 2))
            z = self.vae.encode(train_vae.place(x.to(self.dtype), self.last))[0].float()
            parts.append(((z - self.mean) / self.deviation).half())
        return torch.cat(parts).contiguous(), models.tokenize(self.tokenizer, scenes['caption']).to(self.device), scenes['caption']

    @torch.no_grad()
    def decode(self, latents):
        """Decodes one normalized latent [C, F, h, w] to a video [3, F, H, W]."""
        z = (latents[None].float() * self.deviation + self.mean).to(self.dtype)
        return self.vae.decode(train_vae.place(z, self.last))[0].float().clamp(-1, 1)


class Pool:
    """Latents of clips of one size, for training. When the pool is full, new clips replace the oldest ones."""

    def __init__(self, maker, height, width, frames, batch, room, seed):
        self.maker, self.size, self.frames, self.batch = maker, (height, width), frames, batch
        self.shape = vaes.latent_shape(self.size, frames)
        self.room = min(60_000, max(batch, room // (2 * math.prod(self.shape))))
        self.z = torch.empty(self.room, *self.shape, dtype=torch.float16, device=maker.device)
        self.ids = torch.zeros(self.room, models.TEXT_TOKENS, dtype=torch.long, device=maker.device)
        self.made, self.chunk, self.seed = 0, max(1, min(64, 80_000_000 // (height * width * frames), 8 * batch)), seed

    def add(self):
        """Makes a chunk of new clips and adds them to the pool."""
        z, ids, _ = self.maker.make(self.seed + self.made, self.size, self.frames, self.chunk)
        where = torch.arange(self.made, self.made + self.chunk, device=z.device) % self.room
        self.z[where], self.ids[where] = z, ids
        self.made += self.chunk

    def fill(self, seconds):
        begun = time.time()
        while time.time() - begun < seconds or self.made < self.batch:
            self.add()
            if self.z.is_cuda:
                torch.cuda.synchronize()
        name = f'{self.size[1]}x{self.size[0]}x{self.frames}'
        print(f'pool {name}: {self.made} clips, {self.made / (time.time() - begun):.1f} a second, room for {self.room}', flush=True)

    def draw(self, n, generator):
        index = torch.randint(0, min(self.made, self.room), (n,), generator=generator, device=self.z.device)
        return self.z[index], self.ids[index]


# ---- loss ---------------------------------------------------------------------------------------------------------

def velocity_errors(net, text_encoder, z, ids, sigma, noise, known, dtype):
    """Returns the mean squared error of each clip's predicted velocity. known [B] is true for clips whose first latent frame is given; this frame does not count."""
    shape = (-1, 1, 1, 1, 1)
    x = (1 - sigma.view(shape)) * z + sigma.view(shape) * noise
    first = known.view(shape)
    x = torch.cat([torch.where(first, z[:, :, :1], x[:, :, :1]), x[:, :, 1:]], 2)
    steps = (models.TRAIN_STEPS * sigma)[:, None].repeat(1, z.shape[2])
    steps[:, 0] = torch.where(known, 0.0, steps[:, 0])
    v = net(x.to(dtype), steps, text_encoder(ids), models.padding_bias(ids)).float()
    e = ((v - (noise - z)) ** 2).mean((1, 3, 4))                            # [B, F]
    counted = torch.ones_like(e)
    counted[:, 0] = (~known).float()
    return (e * counted).sum(1) / counted.sum(1)


def draw_sigmas(n, shift, generator, device):
    """Draws n stratified sigmas. One in five is uniform in 0..1; the others are denser in the middle. All are then shifted towards noise."""
    u = (torch.randperm(n, generator=generator, device=device) + torch.rand(n, generator=generator, device=device)) / n
    middle = torch.sigmoid(math.sqrt(2) * torch.erfinv((2 * u - 1).clamp(-0.9999, 0.9999)))
    return models.shifted(torch.where(torch.rand(n, generator=generator, device=device) < 0.2, u, middle), shift)


# ---- training -----------------------------------------------------------------------------------------------------

class Run:
    """A run of one training stage."""

    def __init__(self, ranks, args):
        self.ranks, self.args, self.begun = ranks, args, time.time()
        self.device = 'cuda' if torch.cuda.is_available() else 'cpu'
        self.dtype = torch.bfloat16 if self.device == 'cuda' else torch.float32
        self.stage = TOY if args.toy else STAGES[args.stage]
        for name in ('lr', 'shift', 'hold', 'end', 'fill', 'fresh', 'reserve'):
            if getattr(args, name) is not None:
                self.stage[name] = getattr(args, name)
        if args.sizes:
            self.stage['sizes'] = [tuple(map(int, s.split('x'))) for s in args.sizes]
        torch.manual_seed(1000 + args.stage)
        self.generator = torch.Generator(self.device).manual_seed(args.seed + 1000 * args.stage + 100_000 * ranks.rank)
        self.micro = {}             # {size: clips at once}, for sizes whose whole step does not fit into memory

    def clock(self):
        return f'{time.time() - self.begun:.0f} s'

    def load(self):
        args = self.args
        os.makedirs(args.out, exist_ok=True)
        pieces = os.path.join(args.out, 'spiece.model')
        given = os.path.join(args.from_folder, 'spiece.model')
        if self.ranks.rank > 0:
            pass                    # rank 0 writes the file
        elif os.path.exists(given):
            if os.path.abspath(given) != os.path.abspath(pieces):
                with open(given, 'rb') as f, open(pieces, 'wb') as g:
                    g.write(f.read())
        else:
            unigram.train(pieces, scenes.sample(100, 12000)['caption'], most_pieces=768)
        self.ranks.from_first([0])  # the others wait until the file is there
        self.tokenizer = unigram.load(pieces)
        vae, mean, deviation = train_vae.load(args.vae or os.path.join(args.from_folder, 'vae'), self.device, self.dtype)
        last = self.device == 'cuda'
        train_vae.lay(vae, last)
        if last and not args.no_compile:
            print(f'compiled: norms {vaes.compile_norms(self.device, self.dtype)}, faces {data.compile_faces(self.device)}; {self.clock()}', flush=True)
        self.maker = Maker(vae, mean, deviation, self.tokenizer, 64 if args.toy else 512, last)
        config = dict(models.TRANSFORMER, num_layers=2 if args.toy else args.layers, ffn_dim=64 if args.toy else args.ffn_dim, num_attention_heads=1 if args.toy else args.heads)
        text_config = dict(models.TEXT_ENCODER, vocab_size=self.tokenizer.vocab_size())
        self.transformer, self.text_encoder = models.Transformer(config), models.TextEncoder(text_config)
        weights = load_weights(args.from_folder)
        if weights:
            self.transformer.load_state_dict(part_of(weights, 'transformer'))
            self.text_encoder.load_state_dict(part_of(weights, 'text_encoder'))
        self.configs = {'transformer': config, 'text_encoder': text_config}
        named = {}
        for name, net in (('transformer', self.transformer), ('text_encoder', self.text_encoder)):
            net.to(self.device)
            named.update({f'{name}.{n}': p for n, p in net.named_parameters()})
        muon = [n for n, p in named.items() if p.ndim == 2 and 'block' in n and 'relative' not in n and not n.endswith('table')]
        self.trainer = Trainer(named, muon, ema=args.ema)
        self.ranks.align(self.trainer.master + self.trainer.ema)
        for net in (self.transformer, self.text_encoder):
            net.to(self.dtype)
        self.empty = models.tokenize(self.tokenizer, ['']).to(self.device)
        count = lambda net: sum(p.numel() for p in net.parameters()) / 1e6
        print(f'transformer {count(self.transformer):.2f} M, text encoder {count(self.text_encoder):.2f} M parameters, {"continued" if weights else "new"}; '
              f'Muon on {len(muon)} matrices; {self.clock()}', flush=True)

    def fill(self):
        sizes, stage = self.stage['sizes'], self.stage
        self.pools = []
        for k, (h, w, f, batch) in enumerate(sizes):
            self.pools.append(Pool(self.maker, h, w, f, batch, POOL_BYTES // len(sizes),
                                   (self.args.seed * 10 + self.args.stage * 4 + k + 100 * self.ranks.rank) * 1_000_000))
            self.pools[-1].fill(stage['fill'] / len(sizes))
        n = 4 if self.args.toy else HELD_OUT
        self.held_out = [self.maker.make(TEST_SEED, p.size, p.frames, min(n, 4 * p.batch))[:2] for p in self.pools]
        print(f'held-out clips: {self.clock()}', flush=True)

    def step(self, pool):
        """Runs the forward and backward passes of one step. Returns the errors and sigmas of its clips."""
        z, ids = pool.draw(pool.batch, self.generator)
        rand = lambda: torch.rand(len(z), generator=self.generator, device=self.device)
        ids = torch.where(rand()[:, None] < 0.1, self.empty, ids)
        sigma, known = draw_sigmas(len(z), self.stage['shift'], self.generator, self.device), rand() < self.args.first_frame
        noise = torch.randn(z.shape, generator=self.generator, device=self.device)
        micro, errors = self.micro.get(pool.shape, len(z)), []
        for k in range(0, len(z), micro):
            part = slice(k, k + micro)
            e = velocity_errors(self.transformer, self.text_encoder, z[part].float(), ids[part], sigma[part], noise[part], known[part], self.dtype)
            (e.sum() / len(z)).backward()
            errors.append(e.detach())
        return torch.cat(errors), sigma

    def try_steps(self):
        """Compiles the blocks and tries a step of every size. If memory does not suffice, halves the number of clips that are computed at once."""
        if self.device == 'cuda':
            largest = max(self.pools, key=lambda p: p.batch * math.prod(p.shape))
            tokens = math.prod(largest.shape[1:]) // 4
            pick_attention((max(1, largest.batch // 2), self.configs['transformer']['num_attention_heads'], tokens, 128), self.device)
            if not self.args.no_compile:
                torch._dynamo.config.recompile_limit = 64
                for block in self.transformer.blocks:
                    block.compile(dynamic=False)
        for pool in self.pools:
            while True:
                try:
                    self.step(pool)
                    break
                except torch.OutOfMemoryError:
                    self.micro[pool.shape] = max(1, self.micro.get(pool.shape, pool.batch) // 2)
                    print(f'out of memory: {self.micro[pool.shape]} clips at once for {pool.shape}', flush=True)
                    if self.micro[pool.shape] == 1 and getattr(pool, 'single', False):
                        raise
                    pool.single = self.micro[pool.shape] == 1
                except Exception as error:                                  # for example, compiling failed
                    if self.device != 'cuda' or self.transformer.blocks[0]._compiled_call_impl is None:
                        raise
                    print('not compiled:', str(error)[:300], flush=True)
                    self.plain()
                self.trainer.push(self.trainer.master)
                if self.device == 'cuda':
                    torch.cuda.empty_cache()
            self.trainer.push(self.trainer.master)                          # clears the gradients
            if self.device == 'cuda':
                torch.cuda.synchronize()
                begun = time.time()
                self.step(pool)
                torch.cuda.synchronize()
                self.trainer.push(self.trainer.master)
                print(f'{pool.shape}: {(time.time() - begun) * 1000:.0f} ms for {pool.batch} clips, peak {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB; '
                      f'{self.clock()}', flush=True)

    def plain(self):
        """Discards the compiled versions of the blocks."""
        for block in self.transformer.blocks:
            block._compiled_call_impl = None

    def rate(self, done):
        warm = min(1, (self.trainer.steps + 1) / (150 if self.args.stage == 1 else 60))
        hold, end = self.stage['hold'], self.stage['end']
        fall = 1.0 if done < hold else max(end, 1 - (1 - end) * (done - hold) / max(1e-6, 1 - hold))
        return warm * fall

    def train(self):
        args, stage, trainer, ranks = self.args, self.stage, self.trainer, self.ranks
        group = 1 if self.device == 'cpu' else 4                            # number of steps between looks at the clock
        start = mark = saved = time.time()
        length = max(1.0, args.seconds - (start - self.begun) - stage['reserve'])
        total, bins, step, marked, added, spent, seen, lr = torch.zeros((), device=self.device), torch.zeros(4, 2, device=self.device), 0, 0, 0, 0.0, 0, stage['lr']
        apart = 0.0
        trainer.keep()
        while True:
            self.wait()             # for the GPU, so that the clock counts its work
            now = time.time()
            done, make, look = ranks.from_first([(now - start) / length, spent < stage['fresh'] * (now - start), now - mark > 10 or args.toy])
            if (look or done >= 1) and step > marked:
                size = trainer.size()
                ranks.average([total, bins, size])
                loss, quarters = (total / (step - marked)).item(), (bins[:, 0] / bins[:, 1].clamp_min(1e-9)).tolist()
                print(f'{self.clock()}, step {step}, {seen} clips, loss {loss:.4f}, by quarter of sigma {[round(q, 3) for q in quarters]}, rate {self.rate(done):.3f}, '
                      f'{(now - mark) / (step - marked) * 1000:.0f} ms a step, {spent / (now - start):.0%} for data', flush=True)
                if math.isfinite(loss) and size.isfinite():
                    apart = max(apart, ranks.align(trainer.master))
                    trainer.keep()
                    if now - saved > 90 and ranks.rank == 0:
                        save_weights(trainer.averaged(), args.out)
                        saved = now
                else:
                    print('not finite: back to the last good weights, at half the rate', flush=True)
                    trainer.go_back()
                    lr *= 0.5
                total.zero_()
                bins.zero_()
                mark, marked = now, step
            if done >= 1:
                break
            if make:
                begun = time.time()
                self.pools[added % len(self.pools)].add()
                self.wait()
                spent, added = spent + time.time() - begun, added + 1
            for _ in range(group):
                pool = self.pools[step % len(self.pools)]
                errors, sigma = self.step(pool)
                rate = self.rate(done)
                trainer.step(lr * 0.67 * rate, lr * rate, average=ranks.average)
                step, seen, total = step + 1, seen + ranks.count * pool.batch, total + errors.mean()
                quarter = (sigma * 4).long().clamp(0, 3)
                bins[:, 0].index_add_(0, quarter, errors)
                bins[:, 1].index_add_(0, quarter, torch.ones_like(errors))
        if apart > 0 and args.toy:
            raise RuntimeError(f'the weights of the ranks differ by up to {apart:.1e}')
        if apart > 0:
            print(f'the weights of the ranks differed by up to {apart:.1e} before they were made equal', flush=True)
        self.report = {'stage': args.stage, 'steps': step, 'clips': seen, 'made': [p.made for p in self.pools], 'seconds': round(time.time() - start),
                       'sizes': stage['sizes'], 'micro': {str(k): v for k, v in self.micro.items()}, 'gpus': ranks.count, 'apart': apart}
        print(f'trained: {json.dumps(self.report)}; {self.clock()}', flush=True)

    def wait(self):
        if self.device == 'cuda':
            torch.cuda.synchronize()

    @torch.no_grad()
    def validate(self):
        """Prints the loss of the averaged weights on held-out clips, always with the same clips, noise and sigmas."""
        self.report['held_out'] = {}
        for pool, (z, ids) in zip(self.pools, self.held_out):
            generator = torch.Generator(self.device).manual_seed(5)
            errors = []
            for sigma in (0.2, 0.4, 0.6, 0.8, 0.95):
                noise = torch.randn(z.shape, generator=generator, device=self.device)
                step = self.micro.get(pool.shape, pool.batch)
                known = torch.zeros(len(z), dtype=torch.bool, device=self.device)
                parts = [velocity_errors(self.transformer, self.text_encoder, z[k:k + step].float(), ids[k:k + step],
                                         torch.full((len(z[k:k + step]),), sigma, device=self.device), noise[k:k + step], known[k:k + step], self.dtype)
                         for k in range(0, len(z), step)]
                errors.append(round(torch.cat(parts).mean().item(), 4))
            self.report['held_out'][f'{pool.size[1]}x{pool.size[0]}x{pool.frames}'] = errors
        print(f'held-out loss at sigma .2, .4, .6, .8, .95: {self.report["held_out"]}; {self.clock()}', flush=True)

    @torch.no_grad()
    def draw(self):
        """Writes sheets of clips that the model makes: from new captions, and from the first frames and captions of two held-out clips."""
        pool, args = self.pools[0], self.args
        scenes = data.sample(TEST_SEED + 7, args.samples, pool.size[1] / pool.size[0])
        ids = models.tokenize(self.tokenizer, scenes['caption']).to(self.device)
        steps = 2 if args.toy else args.sample_steps
        at_once, parts = max(1, 60_000 // (math.prod(pool.shape[1:]) // 4)), []
        for k in range(0, len(ids), at_once):
            parts.append(models.sample_latents(self.transformer, self.text_encoder, ids[k:k + at_once], self.empty, pool.shape, self.stage['shift'], args.guidance, steps, 1 + k))
        z, held = self.held_out[0]
        for k in range(min(2, len(z), (args.samples + 3) // 4)):
            parts.append(models.sample_latents(self.transformer, self.text_encoder, held[k:k + 1], self.empty, pool.shape, self.stage['shift'], args.guidance, steps, 90 + k,
                                               z[k:k + 1, :, :1].float()))
        latents = torch.cat(parts)
        print(f'sampled: latent std {latents.std():.3f}; {self.clock()}', flush=True)
        videos = []
        for latent in latents:
            video = self.maker.decode(latent)
            scale = min(1.0, (70_000 / (video.shape[2] * video.shape[3])) ** 0.5)
            if not videos:
                write_png(os.path.join(args.out, f'frame-{args.stage}.png'), video[:, video.shape[1] // 2])
            videos.append(F.interpolate(video.transpose(0, 1), scale_factor=scale, mode='area').transpose(0, 1).cpu() if scale < 1 else video.cpu())
        write_png(os.path.join(args.out, f'sheet-{args.stage}.png'), data.sheet(videos, 2 if len(videos) % 2 == 0 else 1))
        self.report['captions'] = scenes['caption']
        print('\n'.join(f'{k + 1}. {c}' for k, c in enumerate(scenes['caption'])), flush=True)

    def finish(self):
        save_weights(self.trainer.averaged(), self.args.out)
        self.trainer.push(self.trainer.ema)
        self.plain()
        try:
            self.validate()
            if self.args.samples:
                self.draw()
        finally:
            with open(os.path.join(self.args.out, f'report-{self.args.stage}.json'), 'w') as f:
                json.dump({**self.report, 'configs': self.configs, 'options': vars(self.args)}, f, indent=1)
        print(f'finished: {self.clock()}', flush=True)


def work(ranks, args):
    """Runs a stage on one rank. Rank 0 writes all files and prints."""
    if args.toy:
        torch.set_num_threads(1)
    if ranks.rank > 0:
        sys.stdout = open(os.devnull, 'w')
    run = Run(ranks, args)
    run.load()
    run.fill()
    run.try_steps()
    run.train()
    ranks.part()
    if ranks.rank == 0:
        run.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--stage', type=int, default=1, help='1 to 6')
    parser.add_argument('--from', dest='from_folder', default='work', help='folder with vae/ and, after stage 1, spiece.model and the weights of the stage before')
    parser.add_argument('--vae', default='', help='folder of the VAE, if elsewhere')
    parser.add_argument('--out', default='work')
    parser.add_argument('--minutes', type=float, default=None, help='for everything, loading and samples included')
    parser.add_argument('--seconds', type=float, default=540)
    parser.add_argument('--sizes', nargs='*', help='HEIGHTxWIDTHxFRAMESxCLIPS, instead of the stage\'s')
    for name, kind in (('lr', float), ('shift', float), ('hold', float), ('end', float), ('fill', float), ('fresh', float), ('reserve', float)):
        parser.add_argument('--' + name, type=kind, default=None, help='instead of the stage\'s')
    parser.add_argument('--layers', type=int, default=models.TRANSFORMER['num_layers'])
    parser.add_argument('--heads', type=int, default=models.TRANSFORMER['num_attention_heads'])
    parser.add_argument('--ffn-dim', type=int, default=models.TRANSFORMER['ffn_dim'])
    parser.add_argument('--ema', type=float, default=0.999)
    parser.add_argument('--first-frame', type=float, default=0.15, help='share of the clips whose first frame is given')
    parser.add_argument('--seed', type=int, default=1, help='use another one to repeat a stage with new clips')
    parser.add_argument('--samples', type=int, default=10)
    parser.add_argument('--sample-steps', type=int, default=30)
    parser.add_argument('--guidance', type=float, default=3.0)
    parser.add_argument('--gpus', type=int, default=1, help='each GPU computes the clips of a step of its own, so N GPUs see N times as many clips')
    parser.add_argument('--no-compile', action='store_true')
    parser.add_argument('--toy', action='store_true', help='a quick test of the script')
    args = parser.parse_args()
    if args.minutes is not None:
        args.seconds = 60 * args.minutes
    if args.toy:
        args.samples = 2
    together.run(args.gpus, work, args)


if __name__ == '__main__':
    main()
