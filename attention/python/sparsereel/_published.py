"""The entry points of SpargeAttn under their own names, so that a program written for them runs by changing the import.

What they choose is as published (arXiv 2502.18137): of each tile of 128 queries the best blocks of 64 keys by the softmax of pooled queries and keys, the
others dropped; blocks of keys or queries that are not alike in themselves are computed. topk is a part of all key blocks, of a causal call too; cdf leaves out
the block that crosses the threshold; each tile has one block at least. The products are this library's. Other than published: a causal mask hides single keys
on every GPU, sequences may be shorter than 128 tokens, head_dim is any multiple of 8, and every device of the library will do.
"""
import torch
from torch import Tensor

from ._attention import _check_tensors, attention

_QUERIES, _KEYS = 128, 64


def _refuse(**arguments):
    for name, given in arguments.items():
        if given:
            raise NotImplementedError(f'{name} is not supported: leave it at its default')


def _per_head(value, q):
    """A number or a tensor of one or of `heads` elements as [1, heads, 1]."""
    values = torch.as_tensor(value, dtype=torch.float32, device=q.device).reshape(-1)
    if values.numel() not in (1, q.size(1)):
        raise ValueError(f'{values.numel()} values for {q.size(1)} heads: pass a number, or one for each head')
    return values.expand(q.size(1)).view(1, -1, 1)


def _pooled(x, size):
    """Of blocks of `size` tokens: means, and similarity, the mean cosine of all pairs."""
    padding = -x.size(2) % size
    blocks = torch.nn.functional.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, size))
    counts = torch.full((blocks.size(2), 1), size, dtype=torch.float32, device=x.device)
    counts[-1] -= padding
    directions = torch.nn.functional.normalize(blocks, dim=-1).sum(3)
    return blocks.sum(3) / counts, directions.square().sum(-1) / counts.squeeze(1).square()


def _visible(queries, keys, device):
    """Blocks of which a causal mask leaves a key to the last of their queries."""
    last = (torch.arange(-(-queries // _QUERIES), device=device) + 1).mul_(_QUERIES).clamp_(max=queries) - 1 + keys - queries
    return torch.arange(-(-keys // _KEYS), device=device) * _KEYS <= last.unsqueeze(1)


def _block_map(q, k, is_causal, smooth_k, simthreshd1, cdfthreshd, topk, attention_sink):
    """bool [batch, heads, tiles, key blocks]; q, k: [batch, heads, tokens, head_dim], of k a divisor of q's heads."""
    q, k = q.float(), k.float()
    if smooth_k:
        k = k - k.mean(2, keepdim=True)
    means_q, alike_q = _pooled(q, _QUERIES)
    means_k, alike_k = (x.repeat_interleave(q.size(1) // k.size(1), 1) for x in _pooled(k, _KEYS))
    threshold = _per_head(simthreshd1, q)
    mixed_q, mixed_k = (alike_q <= threshold).unsqueeze(3), (alike_k <= threshold).unsqueeze(2)
    scores = (means_q @ means_k.transpose(2, 3) * q.size(3) ** -0.5).masked_fill(mixed_k, -torch.inf)
    visible = _visible(q.size(2), k.size(2), q.device) if is_causal else None
    if is_causal:
        scores = scores.masked_fill(~visible, -torch.inf)
    shares, order = scores.softmax(-1).sort(-1, descending=True)
    if cdfthreshd is None:
        counts = (_per_head(topk, q) * scores.size(3)).long()
    else:
        counts = (shares.cumsum(-1) <= _per_head(cdfthreshd, q).unsqueeze(3)).sum(-1)
    chosen = torch.arange(scores.size(3), device=q.device) < counts.clamp(min=1).unsqueeze(3)
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter_(3, order, chosen.expand_as(scores)) | mixed_q | mixed_k
    if is_causal:
        kept &= visible
    if attention_sink:
        kept[..., 0] = True
    return kept, kept.float().mean() if visible is None else kept.sum() / (visible.sum() * kept.size(0) * kept.size(1))


def _half(*tensors):
    """As published: bfloat16 stays, all else becomes float16."""
    dtype = torch.bfloat16 if tensors[0].dtype == torch.bfloat16 else torch.float16
    return [x.to(dtype) for x in tensors]


def _run(q, k, v, block_map, is_causal, scale, pvthreshd, tensor_layout, output_dtype, return_lse):
    if output_dtype not in (torch.float16, q.dtype):
        raise NotImplementedError(f'output_dtype {output_dtype} is not supported: the output has the dtype of q, {q.dtype}')
    result = attention(q, k, v, is_causal=is_causal, scale=scale, dropped='none', pv_threshold=pvthreshd, block_map=block_map, return_lse=return_lse)
    out, *rest = result if return_lse else (result,)
    return [out.transpose(1, 2) if tensor_layout == 'NHD' else out, *rest]


def _heads_first(tensor_layout, *tensors):
    if tensor_layout not in ('HND', 'NHD'):
        raise ValueError(f'tensor_layout is {tensor_layout!r}: pass "HND" or "NHD"')
    return [x.transpose(1, 2) if tensor_layout == 'NHD' else x for x in tensors]


def _meansim(q, k, v, is_causal, scale, smooth_k, simthreshd1, cdfthreshd, topk, pvthreshd, attention_sink, tensor_layout, output_dtype, return_sparsity,
             return_lse):
    if (cdfthreshd is None) == (topk is None):
        raise ValueError('pass one of cdfthreshd and topk, and None for the other')
    q, k, v = _half(*_heads_first(tensor_layout, q, k, v))
    _check_tensors(q, k, v, 'HND')
    kept, share = _block_map(q, k, is_causal, smooth_k, simthreshd1, cdfthreshd, topk, attention_sink)
    results = _run(q, k, v, kept, is_causal, scale, pvthreshd, tensor_layout, output_dtype, return_lse)
    if return_sparsity:
        results.insert(1, 1 - share.item())
    return results[0] if len(results) == 1 else tuple(results)


def spas_sage2_attn_meansim_topk_cuda(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, smooth_k=True, simthreshd1=-0.1, cdfthreshd=None,
                                      topk=0.5, pvthreshd=50, attention_sink=False, tensor_layout='HND', output_dtype=torch.float16, return_sparsity=False,
                                      return_lse=False):
    """Of each tile of 128 queries the best topk of all key blocks. Returns out, and behind it the sparsity or the lse where asked for."""
    _refuse(attn_mask=attn_mask is not None, dropout_p=dropout_p)
    return _meansim(q, k, v, is_causal, scale, smooth_k, simthreshd1, cdfthreshd, topk, pvthreshd, attention_sink, tensor_layout, output_dtype,
                    return_sparsity, return_lse)


def spas_sage2_attn_meansim_cuda(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, smooth_k=True, simthreshd1=0.6, cdfthreshd=0.98,
                                 pvthreshd=50, attention_sink=False, tensor_layout='HND', output_dtype=torch.float16, return_sparsity=False,
                                 return_lse=False):
    """Of each tile of 128 queries the best key blocks that together hold up to cdfthreshd of the softmax of means."""
    _refuse(attn_mask=attn_mask is not None, dropout_p=dropout_p)
    return _meansim(q, k, v, is_causal, scale, smooth_k, simthreshd1, cdfthreshd, None, pvthreshd, attention_sink, tensor_layout, output_dtype,
                    return_sparsity, return_lse)


def block_sparse_sage2_attn_cuda(q, k, v, mask_id=None, dropout_p=0.0, scale=None, smooth_k=True, pvthreshd=50, attention_sink=False, tensor_layout='HND',
                                 output_dtype=torch.float16, return_sparsity=False, return_lse=False):
    """The blocks of mask_id [batch, heads, ceil(queries / 128), ceil(keys / 64)], 0: dropped. smooth_k has no part in it: K's mean is always taken off before
    it is rounded, which softmax does not see."""
    _refuse(dropout_p=dropout_p, attention_sink=attention_sink)
    del smooth_k
    if not isinstance(mask_id, Tensor):
        raise ValueError('mask_id is no tensor: pass [batch, heads, ceil(queries / 128), ceil(keys / 64)]')
    q, k, v = _half(*_heads_first(tensor_layout, q, k, v))
    _check_tensors(q, k, v, 'HND')
    results = _run(q, k, v, mask_id != 0, False, scale, pvthreshd, tensor_layout, output_dtype, return_lse)
    if return_sparsity:
        results.insert(1, 1 - (mask_id != 0).float().mean().item())
    return results[0] if len(results) == 1 else tuple(results)
