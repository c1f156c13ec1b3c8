"""SpargeAttn's functions under their own names. A program that uses SpargeAttn only has to change its import.

They select blocks as published (arXiv 2502.18137): for each tile of 128 queries, the best blocks of 64 keys by the softmax of pooled queries and keys. The
other blocks are dropped, except blocks whose keys or queries are not similar to each other. topk is a fraction of all key blocks, in causal calls too. cdf
drops the block with which the sum exceeds the threshold. Each tile keeps at least one block. sparsereel.attention() then computes the chosen blocks.

Four points differ from the published code: a causal mask hides single keys on every GPU, sequences may be shorter than 128 tokens, head_dim may be any multiple
of 8, and every device of the library can be used.
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
    """Returns `value`, a number or a tensor with one element or one per head, as a tensor [1, heads, 1]."""
    values = torch.as_tensor(value, dtype=torch.float32, device=q.device).reshape(-1)
    if values.numel() not in (1, q.size(1)):
        raise ValueError(f'{values.numel()} values for {q.size(1)} heads: pass a number, or one for each head')
    return values.expand(q.size(1)).view(1, -1, 1)


def _pooled(x, size):
    """Returns for each block of `size` tokens the mean of its tokens, and its similarity: the mean cosine of all pairs of its tokens."""
    padding = -x.size(2) % size
    blocks = torch.nn.functional.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, size))
    counts = torch.full((blocks.size(2), 1), size, dtype=torch.float32, device=x.device)
    counts[-1] -= padding
    directions = torch.nn.functional.normalize(blocks, dim=-1).sum(3)
    return blocks.sum(3) / counts, directions.square().sum(-1) / counts.squeeze(1).square()


def _visible(queries, keys, device):
    """Returns bool [tiles, key blocks], which is true if a causal mask lets the last query of the tile see a key of the block."""
    last = (torch.arange(-(-queries // _QUERIES), device=device) + 1).mul_(_QUERIES).clamp_(max=queries) - 1 + keys - queries
    return torch.arange(-(-keys // _KEYS), device=device) * _KEYS <= last.unsqueeze(1)


def _block_map(q, k, is_causal, smooth_k, simthreshd1, cdfthreshd, topk, attention_sink):
    """Returns bool [batch, heads, tiles, key blocks] and the share of kept blocks. q, k: [batch, heads, tokens, head_dim]. The number of k's heads may be a divisor of q's."""
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
    """Converts the tensors to bfloat16 if the first has that dtype, otherwise to float16, as published."""
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
    """Computes the best topk of all key blocks for each tile of 128 queries. Returns out, followed by the sparsity and the lse if requested."""
    _refuse(attn_mask=attn_mask is not None, dropout_p=dropout_p)
    return _meansim(q, k, v, is_causal, scale, smooth_k, simthreshd1, cdfthreshd, topk, pvthreshd, attention_sink, tensor_layout, output_dtype,
                    return_sparsity, return_lse)


def spas_sage2_attn_meansim_cuda(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, smooth_k=True, simthreshd1=0.6, cdfthreshd=0.98,
                                 pvthreshd=50, attention_sink=False, tensor_layout='HND', output_dtype=torch.float16, return_sparsity=False,
                                 return_lse=False):
    """Computes, for each tile of 128 queries, the best key blocks that together hold up to cdfthreshd of the softmax of means. Returns out, followed by the
    sparsity and the lse if requested."""
    _refuse(attn_mask=attn_mask is not None, dropout_p=dropout_p)
    return _meansim(q, k, v, is_causal, scale, smooth_k, simthreshd1, cdfthreshd, None, pvthreshd, attention_sink, tensor_layout, output_dtype,
                    return_sparsity, return_lse)


def block_sparse_sage2_attn_cuda(q, k, v, mask_id=None, dropout_p=0.0, scale=None, smooth_k=True, pvthreshd=50, attention_sink=False, tensor_layout='HND',
                                 output_dtype=torch.float16, return_sparsity=False, return_lse=False):
    """Computes the blocks of mask_id [batch, heads, ceil(queries / 128), ceil(keys / 64)]. A 0 drops a block. Returns out, followed by the sparsity and the
    lse if requested.

    smooth_k has no effect: K's mean is always subtracted before K is rounded, which does not change the softmax."""
    _refuse(dropout_p=dropout_p, attention_sink=attention_sink)
    del smooth_k
    if not isinstance(mask_id, Tensor):
        raise ValueError('mask_id is not a tensor: pass [batch, heads, ceil(queries / 128), ceil(keys / 64)]')
    q, k, v = _half(*_heads_first(tensor_layout, q, k, v))
    _check_tensors(q, k, v, 'HND')
    results = _run(q, k, v, mask_id != 0, False, scale, pvthreshd, tensor_layout, output_dtype, return_lse)
    if return_sparsity:
        results.insert(1, 1 - (mask_id != 0).float().mean().item())
    return results[0] if len(results) == 1 else tuple(results)
