"""Defines and trains the classifier, a small network that reads shape, color, background and motion from a clip. It trains on rendered clips."""
import argparse
import math
import time

import torch
from torch import nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import shapes


class Judge(nn.Module):
    """The classifier. Its input is nine evenly spaced frames of 64 x 64. It returns {attribute: scores of the attribute's values}."""

    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for width, kernel, stride in ((24, (1, 5, 5), (1, 2, 2)), (48, 3, (1, 2, 2)), (64, 3, (1, 2, 2)), (64, 3, (2, 2, 2))):
            pad = tuple(k // 2 for k in kernel) if isinstance(kernel, tuple) else kernel // 2
            layers += [nn.Conv3d(channels, width, kernel, stride, pad), nn.GroupNorm(8, width), nn.SiLU()]
            channels = width
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 5 * 4 * 4, 48), nn.SiLU())
        self.heads = nn.ModuleDict({name: nn.Linear(48, len(values)) for name, values in shapes.ATTRIBUTES.items()})

    def forward(self, x):
        features = self.body(x)
        return {name: head(features) for name, head in self.heads.items()}


def view(video):
    """Returns the classifier's input for videos [n, 3, F, H, W] in -1..1 of any length and size."""
    index = torch.linspace(0, video.shape[2] - 1, 9).round().long()
    frames = video[:, :, index.to(video.device)].float()
    n, _, t, h, w = frames.shape
    frames = F.adaptive_avg_pool2d(frames.transpose(1, 2).reshape(n * t, 3, h, w), 64)
    return frames.view(n, t, 3, 64, 64).transpose(1, 2)


def load_judge(path, device='cpu'):
    judge = Judge()
    judge.load_state_dict({k: v.float() for k, v in load_file(path).items()})
    return judge.to(device).eval()


@torch.no_grad()
def read(judge, video):
    """Returns what the classifier reads in videos: {attribute: index of its value, [n] on the CPU}."""
    return {name: s.argmax(1).cpu() for name, s in judge(view(video)).items()}


@torch.no_grad()
def accuracy(judge, device, clips=2048, size=256, seed=990001):
    """Returns for each attribute the share of rendered clips, unseen in training, in which the classifier reads it correctly."""
    right = {name: 0 for name in shapes.ATTRIBUTES}
    scenes = shapes.sample(seed, clips)
    for i in range(0, clips, 32):
        some = shapes.take(scenes, slice(i, i + 32))
        seen = read(judge, shapes.render(some, device, size, list(range(0, 33, 4))))
        for name in right:
            right[name] += (seen[name] == some[name]).sum().item()
    return {name: n / clips for name, n in right.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', default='judge.safetensors')
    parser.add_argument('--seconds', type=float, default=70)
    parser.add_argument('--batch', type=int, default=192)
    parser.add_argument('--test-clips', type=int, default=2048)
    args = parser.parse_args()
    start = time.time()
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.manual_seed(1)
    judge = Judge().to(device)
    optimizer = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=0.01)
    scenes = shapes.sample(31, args.batch * 1000)
    print(f'judge: {sum(p.numel() for p in judge.parameters())} parameters', flush=True)
    frames, step, begun = list(range(0, 33, 4)), 0, time.time()
    length = max(1.0, args.seconds - (begun - start))
    while (done := (time.time() - begun) / length) < 1:
        some = shapes.take(scenes, torch.randint(0, args.batch * 1000, (args.batch,)).tolist())
        with torch.no_grad():                                               # makes the clips blurred and noisy, like frames from a decoder
            x = view(shapes.render(some, device, 128, frames))
            soft = F.avg_pool3d(x, (1, 3, 3), 1, (0, 1, 1), count_include_pad=False)
            n = len(x)
            mix = torch.rand(n, 1, 1, 1, 1, device=device) * (torch.rand(n, 1, 1, 1, 1, device=device) < 0.5)
            x = torch.lerp(x, soft, mix) + torch.randn_like(x) * (0.15 * torch.rand(n, 1, 1, 1, 1, device=device) ** 2)
            x = x * (1 + 0.06 * torch.randn(n, 1, 1, 1, 1, device=device)) + 0.04 * torch.randn(n, 3, 1, 1, 1, device=device)
        with torch.autocast(device, torch.bfloat16):
            scores = judge(x)
        loss = sum(F.cross_entropy(scores[name].float(), some[name].to(device)) for name in scores)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group['lr'] = 2e-3 * min(1, (step + 1) / 50) * 0.5 * (1 + math.cos(math.pi * done))
        optimizer.step()
        step += 1
        if step % 200 == 0:
            print(f'judge {step} loss {loss.item():.4f} {(time.time() - begun) / step * 1000:.0f} ms/step', flush=True)
    save_file({k: v.half().cpu().contiguous() for k, v in judge.state_dict().items()}, args.out)
    scores = accuracy(load_judge(args.out, device), device, args.test_clips)
    print(f'judge: {step} steps of {args.batch}; right on {args.test_clips} held-out clips:', {k: round(v, 4) for k, v in scores.items()}, flush=True)


if __name__ == '__main__':
    main()
