"""Teaches the tiny model to begin with a given picture: trains a LoRA that widens the input of the transformer by the latents of the first frame.

As in CogVideoX's models for image to video, the input gets as many channels again: the picture's latents in the first frame, and zeros in the others. The LoRA
serves two networks: the model itself, and the model with the LoRA of distill.py for a few steps. It is trained in two parts:

1. The model learns to denoise rendered clips whose first frame is given. Where no picture is given, it learns to predict what it predicted before.
2. The model of a few steps learns, by regression, the clips that the model of part 1 makes in many steps from a picture. It also learns the clips that it made
   without a picture before it had this LoRA. The model of part 1 goes on learning.

The last part judges the clips of 200 prompts that training never saw, with and without a picture, in many steps and in a few."""
import math
import os
import time

import torch
from torch import nn

import cogvideox
import distill
import models
import shapes

TEST_SEED = 880088                      # of the scenes whose captions are the prompts of tiny-200.txt


class WithPicture:
    """Wraps a widened network so that it can be called like one without pictures. `pictures` [n, C, H, W] are the latents of a picture for each clip."""

    def __init__(self, net, pictures, blocks=None):
        self.net, self.pictures, self.blocks = net, pictures, blocks

    def __call__(self, x, text, timesteps, table, blocks=None):
        more = torch.zeros_like(x)
        more[:, 0] = self.pictures.repeat(len(x) // len(self.pictures), 1, 1, 1)     # guidance doubles the batch, and repeats the pictures
        return self.net(torch.cat([x, more], 2), text, timesteps, table, self.blocks or blocks)


def widened(net):
    """Returns a copy of the transformer that takes twice as many channels. Its weights for the new channels are zero."""
    state, key = net.state_dict(), 'patch_embed.proj.weight'
    copy = cogvideox.Transformer(2 * cogvideox.LATENT_CHANNELS).requires_grad_(False)
    copy.load_state_dict({**state, key: torch.cat([state[key], torch.zeros_like(state[key])], 1)})
    return copy


def share_lora(source, net):
    """Gives `net` the LoRA of `source`. Both share its tensors, so training changes both networks."""
    for one, other in zip(source.modules(), net.modules()):
        if getattr(one, 'up', None) is not None:
            other.down, other.up = one.down, one.up


class ImageTraining(distill.Distillation):
    """`many` is the network for many steps, `student` the network for a few steps. Both have the LoRA that is trained. Without this LoRA, `many` is `teacher`, and
    `student` is `before`."""

    def make_student(self):
        args = self.args
        self.many, self.before = widened(self.teacher), cogvideox.Transformer().requires_grad_(False)
        self.before.load_state_dict(self.teacher.state_dict())
        distill.merge_lora(self.before, args.few_steps_lora)
        self.student = widened(self.before)
        self.before.to(self.device, self.half)
        self.student.to(self.device)
        self.many.to(self.device)
        self.lora = distill.add_lora(self.student, args.rank, args.time_rank, args.patch_rank)
        share_lora(self.student, self.many)
        self.many_blocks, self.in_part_2 = None, False

    def trials(self):
        return ('many', self.many, self.try_many), ('student', self.student, self.try_student)

    def inputs(self, n, dtype):
        """Returns n made-up inputs with which a widened network is tried."""
        frames, channels, *size = self.shape
        return (torch.zeros(n, frames, 2 * channels, *size, device=self.device, dtype=dtype), self.empty.to(dtype).expand(n, -1, -1).contiguous(),
                torch.full((n,), 499, device=self.device), self.table)

    def try_many(self):
        with torch.no_grad():
            self.many(*self.inputs(2 * self.args.teacher_batch, self.half), self.many_blocks)
        self.backward(self.many(*self.inputs(self.args.many_batch, self.dtype), self.many_blocks))

    def try_student(self):
        self.backward(self.student(*self.inputs(self.args.batch, self.dtype), self.student_blocks))

    def backward(self, v):
        v.float().sum().backward()
        for p in self.lora.values():
            p.grad = None

    # ---- rendered clips

    @torch.no_grad()
    def encode_clips(self, scenes):
        """Returns the latents of rendered clips [n, T, C, H, W], and of their first frames alone [n, C, H, W], drawn as CogVideoX's pipeline draws them."""
        video = (shapes.render(scenes, self.device, 128, range(0, 33, 2)) if self.args.half else shapes.render(scenes, self.device)).to(self.half)
        clips = self.vae.encode(video)[0].transpose(1, 2) * self.scale
        mean, logvar = (m[:, :, 0] for m in self.vae.encode(video[:, :, :1]))
        noise = torch.randn(mean.shape, generator=self.generator, device=self.device)
        return clips, (mean + (logvar / 2).exp() * noise) * self.scale, video[:, :, 0]

    def render(self):
        """Renders and encodes as many clips as the time allows."""
        args, batch = self.args, 16 if self.cuda else 4
        scenes = shapes.sample(args.seed * 1000 + 7, args.clips)
        self.text = self.encode(scenes['caption']).to(self.half)
        self.clips = torch.empty(args.clips, *self.shape, dtype=self.half, device=self.device)
        self.pictures = torch.empty(args.clips, *self.shape[1:], dtype=self.half, device=self.device)
        begun, made = time.time(), 0
        while made + batch <= args.clips and (made < args.held_out + args.teacher_batch or time.time() - begun < args.latent_seconds):
            some = slice(made, made + batch)
            self.clips[some], self.pictures[some], _ = self.encode_clips(shapes.take(scenes, some))
            made += batch
            if self.cuda and made % (8 * batch) == 0:
                torch.cuda.synchronize()
        self.rendered = made
        self.report['rendered'] = made
        part = self.clips[:min(made, 500)].float()
        self.say(f'{made} clips rendered and encoded in {time.time() - begun:.0f} s; latent std {part.std():.3f}, of pictures {self.pictures[:len(part)].float().std():.3f}, '
                 f'a picture differs from the first latent frame by {(self.pictures[:len(part)].float() - part[:, 0]).std():.3f}')

    # ---- part 1: many steps

    def noisy(self, clips, t, generator):
        """Adds noise to clips for the timesteps t [n]. Returns the noisy clips and v, which a network should predict."""
        noise = torch.randn(clips.shape, generator=generator, device=self.device)
        a = self.schedule.alphas[t].view(-1, 1, 1, 1, 1)
        return a.sqrt() * clips + (1 - a).sqrt() * noise, a.sqrt() * noise - (1 - a).sqrt() * clips

    def many_loss(self, n):
        """Returns the mean squared error of v for n clips. Some clips have no text. Some have no picture; for these, the target is the v of the model without the LoRA."""
        index = torch.randint(self.args.held_out, self.rendered, (n,), generator=self.generator, device=self.device)
        u = (torch.randperm(n, generator=self.generator, device=self.device) + torch.rand(n, generator=self.generator, device=self.device)) / n
        t = (u * 1000).long().clamp(0, 999)
        x, v = self.noisy(self.clips[index].float(), t, self.generator)
        text = torch.where(torch.rand(n, 1, 1, generator=self.generator, device=self.device) < 0.1, self.empty, self.text[index])
        pictures, plain = self.pictures[index].clone(), max(1, round(n * self.args.no_picture))
        pictures[:plain] = 0
        with torch.no_grad():
            v[:plain] = self.teacher(x[:plain].to(self.half), text[:plain].to(self.half), t[:plain], self.table).float()
        net = WithPicture(self.many, pictures.to(self.dtype), self.many_blocks)
        return ((net(x.to(self.dtype), text.to(self.dtype), t, self.table).float() - v) ** 2).mean()

    @torch.no_grad()
    def many_error(self):
        """Returns the squared error of v on held-out clips with a picture, divided by the error of the model that sees no picture."""
        n, generator = self.args.held_out, torch.Generator(self.device).manual_seed(5)
        errors = torch.zeros(2)
        for first in range(0, n, 4):
            index = torch.arange(first, min(first + 4, n), device=self.device)
            t = (index * 1000 + 500) // n
            x, v = self.noisy(self.clips[index].float(), t, generator)
            for k, net in enumerate((WithPicture(self.many, self.pictures[index]), self.teacher)):
                errors[k] += ((net(x.to(self.half), self.text[index], t, self.table).float() - v) ** 2).sum().item()
        return (errors[0] / errors[1]).item()

    def held_out(self):
        return super().held_out() if self.in_part_2 else self.many_error()

    # ---- part 2: a few steps

    def fill(self):
        """Makes the clips that the network for a few steps learns. In three of four batches, the network for many steps makes them from a picture. In the fourth batch, the
        network for a few steps without the LoRA makes them, without a picture."""
        args, n, begun, made = self.args, self.args.teacher_batch, time.time(), 0
        self.few_pictures = torch.zeros_like(self.pictures[:self.rendered])
        self.states = torch.empty(self.rendered, args.steps + 1, *self.shape, dtype=self.half, device=self.device)
        while made + n <= self.rendered and (made < args.held_out + n or time.time() - begun < args.teacher_seconds):
            some = slice(made, made + n)
            noise, given = torch.randn(n, *self.shape, generator=self.generator, device=self.device), (made // n) % 4 != 3
            if given:
                self.few_pictures[some] = self.pictures[some]
            net = WithPicture(self.many, self.few_pictures[some], self.many_blocks) if given else self.before
            end, watched = models.denoise(net, noise, self.text[some], self.empty, self.table, models.GUIDANCE if given else 1,
                                          args.teacher_steps if given else args.steps, self.times)
            self.states[some] = torch.stack([*watched, end], 1)
            made += n
            if self.cuda:
                torch.cuda.synchronize()
        self.made = made
        spread = self.states[:args.held_out, -1].float()
        self.variance = spread.var().item()
        self.report.update(clips=made, teacher_seconds=round(time.time() - begun, 1))
        self.say(f'{made} clips of {args.teacher_steps} steps, {(time.time() - begun) / made * 1000:.1f} ms each; latent std {spread.std():.3f}, '
                 f'finite: {bool(torch.isfinite(spread).all())}')

    def few_steps(self, index):
        return WithPicture(self.student, self.few_pictures[index])

    def clean(self, x, k, net, text, dtype=None):
        net.pictures = net.pictures.to(dtype or self.dtype)
        return super().clean(x, k, net, text, dtype)

    # ---- training

    def train(self):
        args = self.args
        self.say(f'held out before training: {self.held_out():.4f} of the error without a picture')
        way, lr = (args.optimizer, args.lr) if args.lr else self.pick_rate(lambda: self.many_loss(args.many_batch))
        self.report.update(optimizer=way, lr=lr)
        self.trainer = self.make_trainer(way, args.ema)
        losses = self.run(self.trainer, args.many_seconds, lr, lambda part: self.many_loss(args.many_batch), lambda part: 1 - 0.9 * part, self.save)
        self.report.update(many_steps=len(losses), many_error=self.averaged_error(self.trainer))
        self.say(f'part 1: {len(losses)} steps of {args.many_batch}, held out {self.report["many_error"]:.4f} of the error without a picture')
        self.trainer.push(self.trainer.ema)
        self.fill()
        self.in_part_2, started = True, self.trainer.averaged()
        self.say(f'a few steps before part 2: held out {self.held_out():.4f} of the variance')
        self.trainer = self.make_trainer(way, args.ema)
        both = lambda loss: loss + args.many_weight * self.many_loss(args.many_batch)
        seconds = max(2.0, self.left() - args.reserve)
        losses = self.run(self.trainer, seconds * args.single, lr * args.whole_rate, lambda part: both(self.single_loss(args.batch)), lambda part: 1, self.save)
        self.say(f'each step alone: {len(losses)} steps of {args.batch}, held out {self.averaged_error(self.trainer):.4f}')
        seconds = max(2.0, self.left() - args.reserve)
        rest = self.run(self.trainer, seconds, lr * args.whole_rate, lambda part: both(self.whole_loss(args.batch, args.between * (1 - part))), lambda part: 1 - part, self.save)
        self.trainer.push(self.trainer.ema)
        self.report.update(single_steps=len(losses), whole_steps=len(rest), held_out=self.held_out(), many_error_at_end=self.many_error())
        self.say(f'all steps in a row: {len(rest)} steps of {args.batch}, held out {self.report["held_out"]:.4f}; many steps {self.report["many_error_at_end"]:.4f}')
        self.save()

    def about(self):
        return {}

    # ---- judging

    @torch.no_grad()
    def judge_clips(self):
        args = self.args
        distill.load_lora(self.lora, os.path.join(args.out, args.name))
        prompts = [line.strip() for line in open(args.prompts) if line.strip()][:args.test_prompts]
        scenes = shapes.sample(TEST_SEED, 200, complete=True)
        assert scenes['caption'][:len(prompts)] == prompts, 'the prompts are not those of the scenes'
        parts = [self.encode_clips(shapes.take(scenes, slice(k, min(k + 8, len(prompts))))) for k in range(0, len(prompts), 8)]
        latents, pictures, images = (torch.cat(p) for p in zip(*parts))
        noise = torch.cat([torch.randn(1, *self.shape, generator=torch.Generator().manual_seed(1000 + k)) for k in range(len(prompts))]).to(self.device)
        text = self.encode(prompts).to(self.half)
        self.say(f'{len(prompts)} pictures to begin with')
        truth = self.score('rendered clips, decoded', latents[:args.first_frames], prompts, 80)
        self.first_frames('rendered clips, decoded', truth, images)
        networks = {(True, True): self.many, (True, False): self.many, (False, True): self.student, (False, False): self.student}
        videos = {}
        for (many, given), net in networks.items():
            tag = f'{"many steps" if many else "a few steps"}, {"with" if given else "without"} a picture'
            shown = pictures if given else torch.zeros_like(pictures)
            ends = [models.denoise(WithPicture(net, p.to(self.half)), x, c, self.empty, self.table, models.GUIDANCE if many else 1,
                                   args.teacher_steps if many else args.steps)[0]
                    for x, c, p in zip(noise.split(args.judge_batch), text.split(args.judge_batch), shown.split(args.judge_batch))]
            videos[many, given] = self.score(tag, torch.cat(ends), prompts, 20)
            if given:
                self.first_frames(tag, videos[many, given], images)
        rows = list(range(min(distill.PAIRS, len(truth))))
        self.sheet('sheet-image.png', videos[True, True], truth, rows)
        self.sheet('sheet-image-few.png', videos[False, True], videos[True, True], [k + len(rows) for k in rows if k + len(rows) < len(videos[False, True])] or rows)
        self.sheet('sheet-text.png', videos[False, False], videos[True, False], rows)
        n = min(len(videos[False, True]), len(videos[True, True]))
        self.report['psnr_of_few_steps'] = self.mean_psnr(videos[False, True][:n], videos[True, True][:n])
        self.say(f'a few steps against many, with a picture: PSNR {self.report["psnr_of_few_steps"]:.2f} dB')
        self.compare_text(videos, noise, text, prompts)

    def compare_text(self, videos, noise, text, prompts):
        """Compares clips without a picture with clips that the networks without the LoRA make."""
        for name, net, guidance, steps, mine in (('many steps', self.teacher, models.GUIDANCE, self.args.teacher_steps, videos[True, False]),
                                                 ('a few steps', self.before, 1, self.args.steps, videos[False, False])):
            n = min(self.args.first_frames, len(mine))
            ends = [models.denoise(net, x, c, self.empty, self.table, guidance, steps)[0] for x, c in zip(noise[:n].split(self.args.judge_batch), text[:n].split(self.args.judge_batch))]
            theirs = self.score(f'{name}, without the LoRA', torch.cat(ends), prompts, 4)
            n = min(n, len(theirs))
            self.report[f'psnr_of_text, {name}'] = self.mean_psnr(mine[:n], theirs[:n])
            self.say(f'{name} without a picture, with the LoRA against without it: PSNR {self.mean_psnr(mine[:n], theirs[:n]):.2f} dB, {n} videos')

    def first_frames(self, tag, videos, images):
        """Prints the PSNR of the clips' first frames against the pictures."""
        n = len(videos)
        psnr = 10 * torch.log10(4 / ((videos[:, :, 0].float() - images[:n].float()) ** 2).flatten(1).mean(1))
        self.report[tag]['first_frame'] = {'psnr': psnr.mean().item(), '5th': psnr.quantile(0.05).item(), 'lowest': psnr.min().item()}
        self.say(f'{tag}: first frame against the picture: PSNR {psnr.mean():.2f} dB, 5th percentile {psnr.quantile(0.05):.2f}, lowest {psnr.min():.2f}')


def main():
    parser = distill.options(__doc__)
    parser.set_defaults(name='tiny-image.safetensors', teacher_steps=25, teacher_seconds=40, reserve=65, lr=2e-3, rank=29, time_rank=4, batch=24, clips=12000, single=0.25)
    parser.add_argument('--few-steps-lora', default=os.path.join(distill.HERE, '..', 'tiny-4-steps.safetensors'))
    parser.add_argument('--patch-rank', type=int, default=32, help='of the layer that takes patches; 32 is enough for all new channels')
    parser.add_argument('--latent-seconds', type=float, default=35, help='for rendering and encoding clips')
    parser.add_argument('--many-seconds', type=float, default=150, help='for part 1')
    parser.add_argument('--many-batch', type=int, default=48)
    parser.add_argument('--many-weight', type=float, default=4, help='weight of the loss of part 1 in part 2')
    parser.add_argument('--no-picture', type=float, default=0.25, help='share of clips without a picture in part 1')
    parser.add_argument('--first-frames', type=int, default=100, help='clips that are compared')
    work = ImageTraining(parser.parse_args())
    work.load()
    work.render()
    work.train()
    try:
        work.judge_clips()
    finally:
        work.finish()


if __name__ == '__main__':
    main()
