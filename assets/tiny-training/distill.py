"""Distills the tiny model to a few steps without guidance: trains a LoRA by regression on the model's own trajectories of many steps with guidance.

First the LoRA learns each step alone, from the teacher's sample at the step's timestep to its sample at the next one. Then it learns all steps in a row, so
that each starts from its own sample, and the result is compared with the teacher's. The last part judges the clips of 200 prompts that training never saw."""
import argparse
import json
import math
import os
import sys
import time

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import cogvideox
import evaluate
import judge as judging
import models
import shapes
from attention import pick_attention
from optim import Trainer
from png import write_png

HERE = os.path.dirname(os.path.abspath(__file__))
PREFIX = 'transformer.'                 # begins the names of a LoRA's tensors in diffusers
PAIRS = 12                              # number of clips on a sheet
RATES = (('adam', 1e-3), ('adam', 3e-3), ('muon', 5e-3), ('muon', 1.5e-2))


# ---- LoRA ---------------------------------------------------------------------------------------------------------

def add_lora(net, rank, time_rank, patch_rank=0):
    """Gives each linear layer of the transformer a LoRA that changes nothing yet. Layers that process the timestep have time_rank, the layer of patches has patch_rank."""
    for name, layer in net.named_modules():
        if isinstance(layer, cogvideox.PatchConv) and patch_rank:
            layer.down = nn.Parameter(torch.empty(patch_rank, *layer.weight.shape[1:], device=layer.weight.device))
            layer.up = nn.Parameter(torch.zeros(layer.out_channels, patch_rank, 1, 1, device=layer.weight.device))
            nn.init.kaiming_uniform_(layer.down, a=math.sqrt(5))
        if isinstance(layer, cogvideox.Linear):
            r = time_rank if layer.in_features == cogvideox.TIME_WIDTH or name.startswith('time_embedding') else rank
            layer.down = nn.Parameter(torch.empty(r, layer.in_features, device=layer.weight.device))
            layer.up = nn.Parameter(torch.zeros(layer.out_features, r, device=layer.weight.device))
            nn.init.kaiming_uniform_(layer.down, a=math.sqrt(5))
    return {n: p for n, p in net.named_parameters() if n.endswith(('.down', '.up'))}


def save_lora(weights, path, metadata):
    names = {'down': 'lora_A.weight', 'up': 'lora_B.weight'}
    tensors = {PREFIX + n.rsplit('.', 1)[0] + '.' + names[n.rsplit('.', 1)[1]]: w.detach().to('cpu', torch.float16).contiguous() for n, w in weights.items()}
    save_file(tensors, path + '.part', metadata={'format': 'pt', **{k: str(v) for k, v in metadata.items()}})
    os.replace(path + '.part', path)


@torch.no_grad()
def load_lora(named, path):
    for name, w in load_file(path).items():
        layer, kind = name[len(PREFIX):].rsplit('.lora_', 1)
        named[f'{layer}.{"down" if kind[0] == "A" else "up"}'].copy_(w)


@torch.no_grad()
def merge_lora(net, path):
    """Adds a LoRA file to the network's weights."""
    factors, layers = load_file(path), dict(net.named_modules())
    for name, down in factors.items():
        if name.endswith('.lora_A.weight'):
            weight = layers[name[len(PREFIX):-len('.lora_A.weight')]].weight
            weight += (factors[name.replace('lora_A', 'lora_B')].flatten(1).float() @ down.flatten(1).float()).view_as(weight)


# ---- distillation -------------------------------------------------------------------------------------------------

class Distillation:
    def __init__(self, args):
        self.args, self.begun = args, time.time()
        self.device = args.device or ('cuda' if torch.cuda.is_available() else 'cpu')
        self.cuda = self.device == 'cuda'
        self.dtype, self.half = (torch.bfloat16, torch.float16) if self.cuda else (torch.float32, torch.float32)
        torch.manual_seed(args.seed)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        self.generator = torch.Generator(self.device).manual_seed(args.seed)
        self.schedule = cogvideox.Schedule(self.device)
        self.times = self.schedule.timesteps(args.steps)
        pairs = [self.schedule.weights(t, before) for t, before in zip(self.times, [*self.times[1:], -1])]
        self.a, self.b = (torch.stack(w) for w in zip(*pairs))               # factors of the sample and of the clean latents in each step
        self.teacher_blocks = self.student_blocks = None
        self.report = {'options': vars(args), 'timesteps': self.times}
        os.makedirs(args.out, exist_ok=True)

    def say(self, *words):
        print(f'{time.time() - self.begun:.0f} s:', *words, flush=True)

    def left(self):
        return self.args.seconds - (time.time() - self.begun)

    def load(self):
        args = self.args
        self.tokenizer, text_encoder, self.teacher, self.vae, self.scale = models.load_pipeline(args.model)
        self.text_encoder = text_encoder.to(self.device)
        self.make_student()
        self.teacher.to(self.device, self.half)
        self.vae.to(self.device, self.half)
        self.judge = judging.load_judge(os.path.join(HERE, 'judge.safetensors'), self.device)
        if args.start:
            load_lora(self.lora, args.start)
        self.first = {n: p.detach().clone() for n, p in self.lora.items()}
        size = sum(p.numel() for p in self.lora.values())
        self.report['lora_bytes'] = 2 * size
        self.table, self.shape = models.rotary(self.device, args.half), models.latent_shape(args.half)
        self.empty = self.encode(['']).to(self.half)
        self.say(f'LoRA of {size} numbers, {2 * size / 2 ** 20:.2f} MiB in 16 bits; steps at {self.times}; device {self.device}')
        if self.cuda:
            pick_attention((args.batch, cogvideox.HEADS, len(self.table[0]) + models.TEXT_TOKENS, cogvideox.HEAD_DIM), self.device)
            if not args.no_compile:
                self.compile()

    def make_student(self):
        """Makes the student: a copy of the teacher with a LoRA, which is trained."""
        self.student = cogvideox.Transformer().requires_grad_(False)
        self.student.load_state_dict(self.teacher.state_dict())
        self.student.to(self.device)
        self.lora = add_lora(self.student, self.args.rank, self.args.time_rank)

    def trials(self):
        """Returns for each network whose blocks should be compiled: a name, the network, and a function that runs it at the batch size of training."""
        return ('teacher', self.teacher, self.try_teacher), ('student', self.student, self.try_student)

    def compile(self):
        """Compiles the blocks of the networks for their batch sizes. If that fails, the networks use their plain blocks."""
        torch._dynamo.config.recompile_limit = 64
        for name, net, run in self.trials():
            setattr(self, name + '_blocks', [torch.compile(b, dynamic=False) for b in net.transformer_blocks])
            try:
                run()
                torch.cuda.synchronize()
                begun = time.time()
                for _ in range(3):
                    run()
                torch.cuda.synchronize()
                self.say(f'{name} compiled, {(time.time() - begun) / 3 * 1000:.1f} ms, {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB')
            except Exception as error:                                      # for example no C compiler
                self.say(f'{name} not compiled:', str(error)[:200].replace('\n', ' '))
                setattr(self, name + '_blocks', None)

    def try_teacher(self):
        n = self.args.teacher_batch
        with torch.no_grad():
            self.teacher(torch.zeros(2 * n, *self.shape, device=self.device, dtype=self.half), self.empty.expand(2 * n, -1, -1).contiguous(),
                         torch.full((2 * n,), 499, device=self.device), self.table, self.teacher_blocks)

    def try_student(self):
        n = self.args.batch
        x, k = torch.zeros(n, *self.shape, device=self.device), torch.zeros(n, dtype=torch.long, device=self.device)
        self.clean(x, k, self.student, self.empty.expand(n, -1, -1)).sum().backward()
        for p in self.lora.values():
            p.grad = None

    @torch.no_grad()
    def encode(self, prompts):
        ids = models.tokenize(self.tokenizer, prompts).to(self.device)
        return torch.cat([self.text_encoder(some) for some in ids.split(1000)])

    # ---- the teacher's clips

    def fill(self):
        """Makes as many of the teacher's clips as the time allows. Keeps the samples at the student's timesteps and at the end."""
        args, n = self.args, self.args.teacher_batch
        captions = shapes.sample(args.seed * 1000 + 7, args.clips)['caption']
        self.text = self.encode(captions).to(self.half)
        self.states = torch.empty(args.clips, args.steps + 1, *self.shape, dtype=self.half, device=self.device)
        begun, made = time.time(), 0
        while made + n <= args.clips and (made < self.args.held_out + n or time.time() - begun < args.teacher_seconds):
            noise = torch.randn(n, *self.shape, generator=self.generator, device=self.device)
            end, watched = models.denoise(self.teacher, noise, self.text[made:made + n], self.empty, self.table, models.GUIDANCE, args.teacher_steps,
                                          self.times, self.teacher_blocks)
            self.states[made:made + n] = torch.stack([*watched, end], 1)
            made += n
            if self.cuda:
                torch.cuda.synchronize()
        self.made = made
        self.report.update(clips=made, teacher_seconds=round(time.time() - begun, 1))
        spread = self.states[:self.args.held_out, -1].float()
        self.variance = spread.var().item()
        self.say(f'{made} clips of {args.teacher_steps} steps, {(time.time() - begun) / made * 1000:.1f} ms each; latent std {spread.std():.3f}, '
                 f'finite: {bool(torch.isfinite(spread).all())}')

    # ---- losses

    def few_steps(self, index):
        """Returns the network that learns to make the clips at these indices in a few steps."""
        return self.student

    def clean(self, x, k, net, text, dtype=None):
        """Returns the clean latents that the network predicts for samples x [n, ...] at steps k [n]."""
        dtype = dtype or self.dtype
        t = torch.tensor(self.times, device=self.device)[k]
        v = net(x.to(dtype), text.to(dtype), t, self.table, self.student_blocks if torch.is_grad_enabled() else None).float()
        alpha = self.schedule.alphas[t].view(-1, 1, 1, 1, 1)
        return alpha.sqrt() * x - (1 - alpha).sqrt() * v

    def draw(self, n):
        return torch.randint(self.args.held_out, self.made, (n,), generator=self.generator, device=self.device)

    def single_loss(self, n):
        """Returns the loss of n clips at one step each: the mean squared error of the clean latents. The target are those that lead to the teacher's next sample."""
        index = self.draw(n)
        k = (torch.randperm(n, generator=self.generator, device=self.device) + torch.randint(0, self.args.steps, (1,), generator=self.generator, device=self.device)) % self.args.steps
        x, after = self.states[index, k].float(), self.states[index, k + 1].float()
        a, b = (w[k].view(-1, 1, 1, 1, 1) for w in (self.a, self.b))
        return ((self.clean(x, k, self.few_steps(index), self.text[index]) - (after - a * x) / b) ** 2).mean()

    def rollout(self, index, dtype=None):
        """Returns the student's samples after each step. It starts from the teacher's noise."""
        x, samples, net = self.states[index, 0].float(), [], self.few_steps(index)
        for k in range(self.args.steps):
            x = self.a[k] * x + self.b[k] * self.clean(x, torch.full((len(index),), k, device=self.device), net, self.text[index], dtype)
            samples.append(x)
        return samples

    def whole_loss(self, n, share):
        """Returns the loss of all steps in a row: the mean squared error of the last sample, plus `share` times that of the samples before, measured as clean latents."""
        index = self.draw(n)
        samples = self.rollout(index)
        errors = [((x - self.states[index, k + 1].float()) ** 2).mean() / self.b[k] ** 2 for k, x in enumerate(samples)]
        return errors[-1] + share * sum(errors[:-1])

    @torch.no_grad()
    def held_out(self):
        """Returns the mean squared error of the last sample on held-out clips, divided by the variance of latents."""
        index = torch.arange(self.args.held_out, device=self.device)
        errors = [((self.rollout(some, self.half)[-1] - self.states[some, -1].float()) ** 2).mean() for some in index.split(16 if self.cuda else 4)]
        return (torch.stack(errors).mean() / self.variance).item()

    # ---- training

    def reset(self):
        with torch.no_grad():
            for name, p in self.lora.items():
                p.copy_(self.first[name])
                p.grad = None
        self.generator.manual_seed(self.args.seed + 1)

    def run(self, trainer, seconds, lr, loss, fall, done=lambda part: None):
        """Trains for `seconds`. `part` is the part of the time that has passed: loss(part) returns the loss, fall(part) a factor of the learning rate. Returns all losses."""
        begun = mark = time.time()
        losses, part, told = [], 0.0, 0
        while (part := (time.time() - begun) / seconds) < 1 or not losses:
            try:
                value = loss(part)
                value.backward()
            except torch.OutOfMemoryError:
                value = None
                trainer.push(trainer.master)                                # clears the gradients
                torch.cuda.empty_cache()
                self.args.batch = max(1, self.args.batch // 2)
                self.say(f'out of memory: {self.args.batch} clips a step from now on')
                continue
            rate = lr * fall(min(1.0, part)) * min(1.0, (trainer.steps + 1) / 50)
            trainer.step(rate / 5 if trainer.mu else rate, rate)            # rates of Adam and of Muon; Muon's updates are a fifth as large
            losses.append(value.detach())
            if self.cuda and len(losses) % 4 == 0:
                torch.cuda.synchronize()
            if time.time() - mark > self.args.every:
                done(part)
                recent = torch.stack(losses[told:]).mean().item()
                self.say(f'step {trainer.steps}, loss {recent:.4f}, held out {self.averaged_error(trainer):.4f}, rate {lr * fall(min(1.0, part)):.2e}, '
                         f'{(time.time() - begun) / len(losses) * 1000:.0f} ms a step')
                told, mark = len(losses), time.time()
        return losses

    def averaged_error(self, trainer):
        trainer.push(trainer.ema)
        error = self.held_out()
        trainer.push(trainer.master)
        return error

    def make_trainer(self, way, ema):
        """Returns a trainer of the LoRA. way: 'adam' for Adam alone, or 'muon' for Muon on the matrices of attention and feed-forward."""
        return Trainer(self.lora, [n for n in self.lora if way == 'muon' and ('attn1' in n or '.ff.' in n)], ema=ema)

    def pick_rate(self, loss):
        """Tries each of RATES for a few seconds. Returns the optimizer and learning rate with the smallest error on held-out clips. loss() returns the loss of some clips."""
        errors = {}
        for way, lr in RATES:
            self.reset()
            trainer = self.make_trainer(way, 0.98)
            losses = self.run(trainer, self.args.probe_seconds, lr, lambda part: loss(), lambda part: min(1.0, 1.5 * (1 - part)))
            error = self.averaged_error(trainer)
            errors[way, lr] = error if math.isfinite(error) else math.inf
            self.say(f'{way} {lr}: loss {torch.stack(losses[-max(1, len(losses) // 5):]).mean():.4f} after {len(losses)} steps, held out {error:.4f}')
        self.reset()
        return min(errors, key=errors.get)

    def train(self):
        args = self.args
        self.say(f'held out before training: {self.held_out():.4f} of the variance')
        way, lr = (args.optimizer, args.lr) if args.lr else self.pick_rate(lambda: self.single_loss(args.batch))
        self.report.update(optimizer=way, lr=lr)
        self.trainer = self.make_trainer(way, args.ema)
        seconds = max(2.0, self.left() - args.reserve)
        if args.single > 0:
            losses = self.run(self.trainer, seconds * args.single, lr, lambda part: self.single_loss(args.batch), lambda part: 1 - 0.5 * part, self.save)
            self.say(f'each step alone: {len(losses)} steps of {args.batch}, held out {self.averaged_error(self.trainer):.4f}')
            self.report['single_steps'] = len(losses)
        seconds = max(2.0, self.left() - args.reserve)
        losses = self.run(self.trainer, seconds, lr * args.whole_rate, lambda part: self.whole_loss(args.batch, args.between * (1 - part)),
                          lambda part: 1 - part, self.save)
        self.report.update(whole_steps=len(losses), held_out=self.averaged_error(self.trainer))
        self.say(f'all steps in a row: {len(losses)} steps of {args.batch}, held out {self.report["held_out"]:.4f}')
        self.save()

    def save(self, part=1.0):
        about = {'base': 'sparsereel tiny', 'source': 'assets/tiny-training/' + os.path.basename(sys.argv[0]), **self.about()}
        save_lora(self.trainer.averaged(), os.path.join(self.args.out, self.args.name), about)

    def about(self):
        """Returns the metadata of the LoRA's file."""
        return {'steps': self.args.steps, 'guidance_scale': 1}

    # ---- judging

    @torch.no_grad()
    def judge_clips(self):
        """Makes clips with the saved LoRA, lets the classifier read them, and compares them with the teacher's clips from the same noise."""
        args = self.args
        load_lora(self.lora, os.path.join(args.out, args.name))
        prompts = [line.strip() for line in open(args.prompts) if line.strip()][:args.test_prompts]
        noise = torch.cat([torch.randn(1, *self.shape, generator=torch.Generator().manual_seed(1000 + k)) for k in range(len(prompts))]).to(self.device)
        text = self.encode(prompts).to(self.half)
        student, teacher = [], []
        self.student.to(self.half)
        for x, c in zip(noise.split(args.judge_batch), text.split(args.judge_batch)):
            student.append(models.denoise(self.student, x, c, self.empty, self.table, 1, args.steps)[0])
        student = torch.cat(student)
        self.say(f'{len(student)} latents of {args.steps} steps; std {student.std():.3f}')
        videos = self.score('student', student, prompts, -8)
        for x, c in zip(noise.split(args.judge_batch), text.split(args.judge_batch)):
            teacher.append(models.denoise(self.teacher, x, c, self.empty, self.table, models.GUIDANCE, args.teacher_steps)[0])
        teacher = torch.cat(teacher)
        self.report['latent_error'] = (((student - teacher) ** 2).mean() / teacher.var()).item()
        self.say(f'error of the latents: {self.report["latent_error"]:.4f} of the variance')
        best = self.score('teacher', teacher, prompts, 25)
        n = len(best)
        psnr = 10 * torch.log10(4 / torch.cat([((a.float() - b.float()) ** 2).flatten(1).mean(1) for a, b in zip(videos.split(8), best.split(8))]))
        edges = [torch.cat([(x[..., 1:].float() - x[..., :-1].float()).abs().flatten(1).mean(1) for x in v[:n].split(8)]).mean().item() for v in (videos, best)]
        self.report.update(psnr=psnr.mean().item(), psnr_5th=psnr.quantile(0.05).item(), psnr_lowest=psnr.min().item(), edges=edges[0] / edges[1])
        self.say(f'student against teacher, {n} videos: PSNR {psnr.mean():.2f} dB, 5th percentile {psnr.quantile(0.05):.2f}, lowest {psnr.min():.2f}; '
                 f'strength of edges {edges[0] / edges[1]:.3f} of the teacher\'s')
        self.sheet('sheet.png', videos, best, list(range(min(PAIRS, n))))
        order = psnr.argsort().tolist()
        self.sheet('sheet-worst.png', videos, best, order[:PAIRS])
        self.report['worst'] = [{'prompt': prompts[k], 'psnr': round(psnr[k].item(), 2)} for k in order[:PAIRS]]
        few = noise[:50]
        latents = models.denoise(self.teacher, few, text[:50], self.empty, self.table, models.GUIDANCE, args.steps)[0]
        videos = self.score('teacher in as few steps', latents, prompts, 5)
        n = min(n, len(videos))
        self.say(f'teacher in as few steps against teacher: PSNR {self.mean_psnr(videos[:n], best[:n]):.2f} dB, {n} videos')

    @staticmethod
    def mean_psnr(a, b):
        return (10 * torch.log10(4 / ((a.float() - b.float()) ** 2).flatten(1).mean(1))).mean().item()

    def score(self, tag, latents, prompts, spare):
        """Prints in how many clips the classifier finds all attributes that the prompt names. Stops if fewer than `spare` seconds are left. Returns the videos."""
        right, told, everything, videos = dict.fromkeys(shapes.ATTRIBUTES, 0), dict.fromkeys(shapes.ATTRIBUTES, 0), 0, []
        for part in models.decode(self.vae, latents, self.scale, 8 if self.cuda else 1):
            seen = judging.read(self.judge, part)
            for k in range(len(part)):
                prompt = prompts[sum(map(len, videos)) + k]
                want = evaluate.labels(prompt)
                wrong = [name for name in want if want[name] >= 0 and int(seen[name][k]) != want[name]]
                everything += not wrong
                for name in want:
                    told[name] += want[name] >= 0
                    right[name] += want[name] >= 0 and name not in wrong
                if wrong:
                    self.say(f'{tag}, {prompt!r}:', ', '.join(f'{name} seen as {shapes.ATTRIBUTES[name][int(seen[name][k])]}' for name in wrong))
            videos.append(part.half())
            if self.left() < spare:
                break
        n = sum(map(len, videos))
        self.report[tag] = {'clips': n, 'right': everything, 'by_attribute': right}
        self.say(f'{tag}: {everything} of {n} clips right;', ', '.join(f'{name} {right[name]} of {told[name]}' for name in right))
        return torch.cat(videos)

    def sheet(self, name, student, teacher, which):
        """Writes a picture with five frames of each clip by the student, and below them five frames of the teacher's clip."""
        rows = []
        for k in which:
            for video in (student[k], teacher[k]):
                frames = video[:, torch.linspace(0, video.shape[1] - 1, 5).round().long()].float().transpose(0, 1)
                rows.append(torch.cat(list(nn.functional.interpolate(frames, size=(128, 128), mode='area')), 2))
        half = (len(which) + 1) // 2 * 2
        rows += [torch.zeros_like(rows[0])] * (2 * half - len(rows))
        write_png(os.path.join(self.args.out, name), torch.cat([torch.cat(rows[:half], 1), torch.cat(rows[half:], 1)], 2))

    def finish(self):
        self.report['seconds'] = round(time.time() - self.begun)
        with open(os.path.join(self.args.out, os.path.splitext(os.path.basename(sys.argv[0]))[0] + '.json'), 'w') as f:
            json.dump(self.report, f, indent=1)
        self.say('finished:', json.dumps({k: v for k, v in self.report.items() if k not in ('options', 'worst')}))


def options(description):
    """Returns a parser with the options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', default=os.path.join(HERE, '..', 'tiny'))
    parser.add_argument('--out', default='work')
    parser.add_argument('--name', default='tiny-4-steps.safetensors', help='file of the LoRA, in --out')
    parser.add_argument('--start', default='', help='LoRA to go on from')
    parser.add_argument('--seconds', type=float, default=560, help='for everything, loading and judging included')
    parser.add_argument('--reserve', type=float, default=90, help='of these, for judging')
    parser.add_argument('--steps', type=int, default=4)
    parser.add_argument('--teacher-steps', type=int, default=50)
    parser.add_argument('--teacher-seconds', type=float, default=120)
    parser.add_argument('--teacher-batch', type=int, default=64)
    parser.add_argument('--clips', type=int, default=12800, help='most clips of the teacher')
    parser.add_argument('--held-out', type=int, default=32, help='of these, not for training')
    parser.add_argument('--rank', type=int, default=28)
    parser.add_argument('--time-rank', type=int, default=8, help='of layers behind the timestep')
    parser.add_argument('--batch', type=int, default=32)
    parser.add_argument('--lr', type=float, default=0, help='0: the best of a few optimizers and rates')
    parser.add_argument('--optimizer', default='adam', choices=['adam', 'muon'], help='with --lr')
    parser.add_argument('--whole-rate', type=float, default=0.5, help='rate of the second part, as a share of the first one\'s')
    parser.add_argument('--probe-seconds', type=float, default=7, help='for each rate that is tried')
    parser.add_argument('--single', type=float, default=0.3, help='share of the time for steps alone')
    parser.add_argument('--between', type=float, default=0.1, help='weight of the samples between')
    parser.add_argument('--ema', type=float, default=0.998)
    parser.add_argument('--every', type=float, default=20, help='seconds between reports')
    parser.add_argument('--prompts', default=os.path.join(HERE, '..', 'prompts', 'tiny-200.txt'))
    parser.add_argument('--test-prompts', type=int, default=200)
    parser.add_argument('--judge-batch', type=int, default=50)
    parser.add_argument('--seed', type=int, default=1, help='another one makes other clips')
    parser.add_argument('--device', default='')
    parser.add_argument('--half', action='store_true', help='half-size clips of every second frame, for tests')
    parser.add_argument('--no-compile', action='store_true')
    return parser


def main():
    work = Distillation(options(__doc__).parse_args())
    work.load()
    work.fill()
    work.train()
    try:
        work.judge_clips()
    finally:
        work.finish()


if __name__ == '__main__':
    main()
