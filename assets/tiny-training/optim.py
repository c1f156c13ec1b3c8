"""Trains bfloat16 models on float32 master weights: AdamW, Muon for chosen matrices, and a moving average."""
import math

import torch


def orthogonal(g, steps=5):
    """Returns, for a stack of matrices g, approximately the nearest matrices with orthonormal rows or columns, by Newton-Schulz iteration."""
    x = g.to(torch.bfloat16)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.mT if tall else x).float()


class Trainer:
    """The master weights, optimizer state and moving average of named parameters (a dict name -> parameter).

    muon: names of the weights that Muon updates, as matrices with a row for each output. AdamW updates the rest."""

    def __init__(self, named, muon=(), beta2=0.99, decay=0.01, ema=0.999):
        self.names, self.params = list(named), list(named.values())
        self.master = [p.detach().float().clone() for p in self.params]
        self.ema = [m.clone() for m in self.master]
        self.moment = [torch.zeros_like(m) for m in self.master]
        self.mu = [i for i, n in enumerate(self.names) if n in set(muon)]
        self.ad = [i for i, n in enumerate(self.names) if n not in set(muon)]
        self.second = [torch.zeros_like(self.master[i]) for i in self.ad]
        self.beta2, self.decay, self.ema_rate, self.steps, self.ema_steps = beta2, decay, ema, 0, 0
        self.stacks = {}
        for k, i in enumerate(self.mu):
            self.stacks.setdefault(tuple(self.master[i].flatten(1).shape), []).append((k, i))

    @torch.no_grad()
    def step(self, lr, lr_muon=None, clip=1.0, average=None):
        """Clips the gradients of the parameters to the norm `clip`, updates the weights once, and clears the gradients. Returns the norm of the gradients before clipping.

        average: a function that replaces the list of fp32 gradients with their averages over several processes."""
        self.steps += 1
        self.ema_steps += 1
        grads = [(torch.zeros_like(p) if p.grad is None else p.grad).float() for p in self.params]
        if average is not None:
            average(grads)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, torch.nan_to_num(clip / (norm + 1e-6), 0.0, 0.0, 0.0).clamp(max=1.0))
        g, m, w = ([s[i] for i in self.ad] for s in (grads, self.moment, self.master))
        torch._foreach_lerp_(m, g, 0.1)
        torch._foreach_mul_(self.second, self.beta2)
        torch._foreach_addcmul_(self.second, g, g, 1 - self.beta2)
        scale = torch._foreach_div(self.second, 1 - self.beta2 ** self.steps)
        torch._foreach_sqrt_(scale)
        torch._foreach_add_(scale, 1e-8)
        torch._foreach_addcdiv_(w, m, scale, -lr / (1 - 0.9 ** self.steps))
        if self.mu:
            lr_muon = lr if lr_muon is None else lr_muon
            g, m = ([s[i] for i in self.mu] for s in (grads, self.moment))
            torch._foreach_lerp_(m, g, 0.05)
            update = torch._foreach_lerp(m, g, 0.05)
            for shape, members in self.stacks.items():
                o = orthogonal(torch.stack([update[k].flatten(1) for k, _ in members])) * (0.2 * math.sqrt(max(shape)))
                w = [self.master[i] for _, i in members]
                torch._foreach_mul_(w, 1 - lr_muon * self.decay)
                torch._foreach_add_(w, [x.view(y.shape) for x, y in zip(o.unbind(0), w)], alpha=-lr_muon)
        torch._foreach_lerp_(self.ema, self.master, 1 - min(self.ema_rate, (1 + self.ema_steps) / (10 + self.ema_steps)))
        self.push(self.master)
        return norm

    @torch.no_grad()
    def push(self, weights):
        """Copies weights (self.master or self.ema) into the model and clears the gradients."""
        torch._foreach_copy_([p.data for p in self.params], weights)
        for p in self.params:
            p.grad = None

    def size(self):
        """Returns the sum of the norms of the weights, as a tensor. It is not finite if a weight is not."""
        return torch.stack(torch._foreach_norm(self.master)).sum()

    def keep(self):
        """Keeps a copy of the weights for go_back(), and copies the weights into the model."""
        self.kept = [m.clone() for m in self.master]
        self.push(self.master)

    def go_back(self):
        """Goes back to the kept weights, without moments."""
        torch._foreach_copy_(self.master, self.kept)
        torch._foreach_copy_(self.ema, self.kept)
        for state in (self.moment, self.second):
            torch._foreach_zero_(state)
        self.push(self.master)

    def averaged(self):
        return dict(zip(self.names, self.ema))

    def state(self):
        return {k: getattr(self, k) for k in ('master', 'ema', 'moment', 'second', 'steps', 'ema_steps')}

    def load_state(self, state):
        for k, v in state.items():
            if isinstance(v, list):
                torch._foreach_copy_(getattr(self, k), [x.to(self.master[0].device) for x in v])
            else:
                setattr(self, k, v)
        self.push(self.master)
