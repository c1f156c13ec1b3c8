"""Chooses torch's attention kernel for training."""
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def pick_attention(shape, device):
    """Times torch's attention kernels, forward and backward, for q of this shape [B, H, N, D]. Enables only the fastest one."""
    q, times = torch.randn(*shape, device=device, dtype=torch.bfloat16, requires_grad=True), {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            with sdpa_kernel(backend):
                for k in range(6):
                    if k == 2:
                        torch.cuda.synchronize()
                        begun = time.time()
                    torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
                torch.cuda.synchronize()
                times[backend] = (time.time() - begun) / 4
        except RuntimeError as error:
            print('attention:', backend, str(error)[:80], flush=True)
    best = min(times, key=times.get)
    torch.backends.cuda.enable_flash_sdp(best == SDPBackend.FLASH_ATTENTION)
    torch.backends.cuda.enable_cudnn_sdp(best == SDPBackend.CUDNN_ATTENTION)
    print('attention:', best, {b.name: f'{t * 1000:.2f} ms' for b, t in times.items()}, 'for', tuple(shape), flush=True)
