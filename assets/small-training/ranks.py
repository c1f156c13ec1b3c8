"""Lets several processes train together, one for each GPU. Each process is a rank, and computes the gradients of its own clips."""
import os
import tempfile

import torch
import torch.distributed as dist


class Ranks:
    """The processes that train together. All of them must call each method equally often. With one process, the methods do nothing."""

    def __init__(self, rank=0, count=1):
        self.rank, self.count = rank, count
        self.device = 'cuda' if torch.cuda.is_available() else 'cpu'

    def from_first(self, numbers):
        """Returns the numbers that rank 0 gave."""
        if self.count == 1:
            return numbers
        shared = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return shared.tolist()

    def average(self, tensors):
        """Replaces fp32 tensors with their averages over the ranks. All of them travel in one buffer."""
        if self.count == 1:
            return
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat)
        flat /= self.count
        parts = flat.split([t.numel() for t in tensors])
        torch._foreach_copy_(tensors, [part.view_as(t) for part, t in zip(parts, tensors)])

    def align(self, tensors):
        """Replaces fp32 tensors with those of rank 0. Returns the largest difference that was found on any rank."""
        if self.count == 1:
            return 0.0
        flat = torch.cat([t.flatten() for t in tensors])
        first = flat.clone()
        dist.broadcast(first, 0)
        apart = (flat - first).abs().max()
        dist.all_reduce(apart, dist.ReduceOp.MAX)
        torch._foreach_copy_(tensors, [part.view_as(t) for part, t in zip(first.split([t.numel() for t in tensors]), tensors)])
        return apart.item()

    def part(self):
        """Ends the work together: waits for all ranks, after which each goes on alone."""
        if self.count > 1:
            dist.barrier()
            dist.destroy_process_group()
            self.count = 1


def _run_rank(rank, count, meeting, work, args):
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group('nccl' if cuda else 'gloo', init_method=f'file://{meeting}', rank=rank, world_size=count)
    work(Ranks(rank, count), args)


def run(count, work, args):
    """Runs work(ranks, args) in `count` processes, one for each GPU; with one, in this process. If a process fails, ends the others and raises its error."""
    if count == 1:
        return work(Ranks(), args)
    if torch.cuda.is_available() and torch.cuda.device_count() < count:
        raise SystemExit(f'{count} GPUs asked for, but this machine has {torch.cuda.device_count()}')
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_run_rank, (count, os.path.join(folder, 'ranks'), work, args), count)
