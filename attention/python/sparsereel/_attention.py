"""Defines the torch.library operator sparsereel::attention, and attention(), which calls it with named arguments."""
import ctypes
import os
import threading
from ctypes import byref, c_int64, c_size_t
from typing import List, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _library as lib

_ELEMENTS = {torch.float32: lib.FP32, torch.float16: lib.FP16, torch.bfloat16: lib.BF16}
_HEAD_FIELDS = 6  # number of fields per head in the flat policy list: selection, topk, cdf, error, similarity, pv_threshold
_defaults = lib.new_call().policy
_TOPK, _CDF, _ERROR, _DENSE_OPERATIONS = _defaults.all.topk, _defaults.all.cdf, _defaults.all.error, _defaults.dense_operations  # copied to plain numbers, because torch.compile cannot read ctypes structs
_TOPK_WITHOUT_MEANS = 0.5
_handles = {}
_threads = 0  # number of threads that the CPU's handle uses
_lock = threading.Lock()
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _begin_anew():
    """Makes a new lock in a forked child. If another thread of the parent held the old lock during the fork, the child's copy of that lock would never be released."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)


def _handle(device):
    """Returns the library's handle of a device, and creates it if necessary. The CPU's handle uses as many threads as torch."""
    global _threads
    index = lib.CPU if device.type == 'cpu' else device.index
    with _lock:
        if index not in _handles:
            _handles[index] = lib.create(index)
        if index == lib.CPU and _threads != torch.get_num_threads():
            _threads = torch.get_num_threads()
            lib.check(lib.LIBRARY.sparsereel_attention_set_threads(_handles[index], _threads))
        return _handles[index]


def _strided(x, layout):
    """Returns the library's description (address and strides) of x, which is [batch, heads, tokens, head_dim] (layout HND) or [batch, tokens, heads, head_dim] (NHD)."""
    batch, first, second, _ = x.stride()
    token, head = (second, first) if layout == 'HND' else (first, second)
    return lib.Tensor(x.data_ptr(), batch, token, head)


def _loadable(x):
    """Returns x if the library can read its rows, otherwise a copy. On a GPU rows must be aligned to 16 bytes."""
    if x.stride(-1) == 1 and (x.device.type == 'cpu' or (x.data_ptr() % 16 == 0 and all(stride % 8 == 0 for stride in x.stride()[:3]))):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _pointer(x, kind):
    return ctypes.cast(x.data_ptr(), ctypes.POINTER(kind))


def _check_map(block_map, q, k, layout):
    token, head = (2, 1) if layout == 'HND' else (1, 2)
    tall, wide, columns = -(-q.size(token) // 64), -(-q.size(token) // 128), -(-k.size(token) // 64)
    shapes = [(q.size(0), q.size(head), rows, columns) for rows in (tall, wide)]
    if tuple(block_map.shape) not in shapes or block_map.device != q.device:
        raise ValueError(f'block_map is {list(block_map.shape)} on {block_map.device}: pass [{q.size(0)}, {q.size(head)}, {tall} or {wide}, {columns}], '
                         f'a row for 64 or 128 queries, on {q.device}')
    return 64 if block_map.size(2) == tall else 128


def _check_key_lengths(key_lengths, q):
    if tuple(key_lengths.shape) != (q.size(0),) or key_lengths.dtype not in _INTEGERS or key_lengths.device.type not in (q.device.type, 'cpu'):
        raise ValueError(f'key_lengths is {key_lengths.dtype} {list(key_lengths.shape)} on {key_lengths.device}: pass integers [{q.size(0)}], one for each batch '
                         f'entry, on {q.device}')


def _call_of(q, k, layout, scale, causal, text_tokens, quantized, policy, dropped, ranking, dense_operations, arithmetic):
    call = lib.new_call()
    token, head = (2, 1) if layout == 'HND' else (1, 2)
    call.element = _ELEMENTS[q.dtype]
    call.batch, call.heads, call.queries, call.keys, call.head_dim = q.size(0), q.size(head), q.size(token), k.size(token), q.size(3)
    call.kv_heads = k.size(head)
    call.scale, call.causal, call.text_tokens, call.quantized = scale, causal, text_tokens, quantized
    heads = (lib.HeadPolicy * (len(policy) // _HEAD_FIELDS))()
    for i, each in enumerate(heads):
        its = policy[i * _HEAD_FIELDS:(i + 1) * _HEAD_FIELDS]
        each.selection, (each.topk, each.cdf, each.error, each.similarity, each.pv_threshold) = int(its[0]), its[1:]
    call.policy.all = heads[0]
    if len(heads) > 1:
        call.policy.heads = heads
    call.policy.dropped, call.policy.ranking, call.policy.dense_operations = dropped, ranking, dense_operations
    call.arithmetic = arithmetic
    return call, heads


def _full(q, k, v, layout, scale, causal, key_lengths, lse):
    """Returns torch's full attention, which is faster for short calls. Also fills `lse` with the log-sum-exp unless it is None."""
    if layout == 'NHD':
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    queries, keys = q.size(2), k.size(2)
    mask = None
    if causal:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    if key_lengths is not None:
        real = torch.arange(keys, device=q.device) < key_lengths.view(-1, 1, 1, 1)
        mask = real if mask is None else mask & real
    if q.size(1) != k.size(1):  # torch 2.4 has no enable_gqa
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale or None)
    if mask is not None:
        out = out.masked_fill(~mask.any(-1, keepdim=True), 0)  # queries that see no key get 0
    if lse is not None:
        scores = q.float() @ k.float().transpose(2, 3) * (scale or q.size(3) ** -0.5)
        lse.copy_((scores if mask is None else scores.masked_fill(~mask, -torch.inf)).logsumexp(-1))
    return (out.transpose(1, 2) if layout == 'NHD' else out).contiguous()


@torch.library.custom_op('sparsereel::attention', mutates_args=(), device_types=('cpu', 'cuda'))
def _operator(q: Tensor, k: Tensor, v: Tensor, layout: str, scale: float, causal: bool, text_tokens: int, quantized: bool, policy: List[float], dropped: int,
              ranking: int, dense_operations: float, block_map: Optional[Tensor], key_lengths: Optional[Tensor], with_lse: bool,
              arithmetic: int = 8) -> Tuple[Tensor, Tensor, Tensor]:
    q, k, v = (_loadable(x) for x in (q, k, v))
    call, heads = _call_of(q, k, layout, scale, causal, text_tokens, quantized, policy, dropped, ranking, dense_operations, arithmetic)
    del heads  # not needed: the call holds a reference if it uses them
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = q.new_empty((call.batch, call.heads, call.queries if with_lse else 0), dtype=torch.float32)
    counts = torch.zeros(lib.COUNTS + 1, dtype=torch.int64, device=q.device)
    call.q, call.k, call.v, call.out = (_strided(x, layout) for x in (q, k, v, out))
    call.counts = _pointer(counts, ctypes.c_uint64)
    if with_lse:
        call.lse = _pointer(lse, ctypes.c_float)
    if block_map is not None:
        call.map_rows = _check_map(block_map, q, k, layout)
        block_map = (block_map != 0).to(torch.uint8).contiguous()
        call.map = _pointer(block_map, ctypes.c_uint8)
    if key_lengths is not None:
        _check_key_lengths(key_lengths, q)
        key_lengths = key_lengths.to(q.device, torch.int64).contiguous()
        call.key_lengths = _pointer(key_lengths, c_int64)
    if not _run(call, q.device):
        out = _full(q, k, v, layout, scale, causal, key_lengths, lse if with_lse else None)
        counts[lib.COUNT_KEPT] = counts[lib.COUNTS] = 1
    elif key_lengths is None:
        counts[lib.COUNTS] = _total_blocks(call, q.device)
    return out, lse, counts


@_operator.register_fake
def _(q, k, v, layout, scale, causal, text_tokens, quantized, policy, dropped, ranking, dense_operations, block_map, key_lengths, with_lse, arithmetic=8):
    if block_map is not None:  # torch calls this function if any argument is on device "meta", so check a block_map even if q has memory
        _check_map(block_map, q, k, layout)
    if key_lengths is not None:
        _check_key_lengths(key_lengths, q)
    token, head = (2, 1) if layout == 'HND' else (1, 2)
    lse = q.new_empty((q.size(0), q.size(head), q.size(token) if with_lse else 0), dtype=torch.float32)
    return torch.empty_like(q, memory_format=torch.contiguous_format), lse, q.new_empty((lib.COUNTS + 1,), dtype=torch.int64)


def _run(call, device):
    """Runs the call and returns True. If the call is too short to gain from sparse attention, does nothing and returns False."""
    handle, bytes_ = _handle(device), c_size_t()
    status = lib.LIBRARY.sparsereel_attention_workspace_size(handle, byref(call), byref(bytes_))
    if status == lib.TOO_SHORT:
        return False
    lib.check(status)
    workspace = torch.empty(bytes_.value, dtype=torch.uint8, device=device)
    stream = None if device.type == 'cpu' else torch.cuda.current_stream(device).cuda_stream
    lib.check(lib.LIBRARY.sparsereel_attention_run(handle, byref(call), workspace.data_ptr(), bytes_.value, stream))
    return True


def _total_blocks(call, device):
    blocks = c_int64()
    lib.check(lib.LIBRARY.sparsereel_attention_total_blocks(_handle(device), byref(call), byref(blocks)))
    return blocks.value


def _check_tensors(q, k, v, layout):
    if layout not in ('HND', 'NHD'):
        raise ValueError(f'tensor_layout is {layout!r}: pass "HND" ([batch, heads, tokens, head_dim]) or "NHD" ([batch, tokens, heads, head_dim])')
    shapes = f'q is {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}'
    head = 1 if layout == 'HND' else 2
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape or any(q.size(d) != k.size(d) for d in (0, 3)):
        raise ValueError(f'{shapes}: pass four dimensions, equal batch and head_dim, and k and v alike')
    if k.size(head) == 0 or q.size(head) % k.size(head) != 0:
        raise ValueError(f'{shapes}: pass k and v with as many heads as q, or a divisor of that number')
    if not q.dtype == k.dtype == v.dtype or q.dtype not in _ELEMENTS:
        raise ValueError(f'q is {q.dtype}, k {k.dtype}, v {v.dtype}: pass all in float16, bfloat16 or, on a CPU, float32')
    if not q.device == k.device == v.device or q.device.type not in ('cpu', 'cuda'):
        raise ValueError(f'q is on {q.device}, k on {k.device}, v on {v.device}: pass all on one GPU, or on the CPU')
    is_dual = not torch.compiler.is_compiling() and any(forward_ad.unpack_dual(x).tangent is not None for x in (q, k, v))
    if is_dual or (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
        raise RuntimeError('sparsereel.attention has no gradients: call it under torch.no_grad() or torch.inference_mode(), or detach q, k and v')


def _name(value, names, argument):
    if value not in names:
        raise ValueError(f'{argument} is {value!r}: pass one of {", ".join(names)}')
    return names[value]


def _values(value, heads, argument):
    """Returns a list of floats: one per head, or a single one if `value` is a number. Raises ValueError for anything else."""
    values = value.tolist() if hasattr(value, 'tolist') else value  # `value` may be a tensor, or an array or number of NumPy
    if isinstance(values, (int, float)):
        return [float(values)]
    if not isinstance(values, (list, tuple)) or not all(isinstance(x, (int, float)) or (hasattr(x, 'item') and x.ndim == 0) for x in values):
        raise ValueError(f'{argument} is {" ".join(repr(value).split())}: pass a number, or one for each head')
    if len(values) != heads:
        raise ValueError(f'{argument} has {len(values)} values, q has {heads} heads: pass a number, or one for each head')
    return [float(x) for x in values]


def _policy(heads, selection, **fields):
    """Returns the policies of all heads as a flat list of _HEAD_FIELDS numbers each. `fields` holds the numbers after the selection in this order, named like the
    arguments of attention()."""
    lists = {name: _values(value, heads, name) for name, value in fields.items()}
    count = max(len(values) for values in lists.values())
    policy = []
    for h in range(count):
        policy.append(float(selection))
        policy.extend(values[h % len(values)] for values in lists.values())
    return policy


def attention(q, k, v, *, topk=None, cdf=None, error=None, block_error=None, tensor_layout='HND', is_causal=False, scale=None, text_tokens=0,
              dropped='mean', select=None, similarity=-0.1, pv_threshold=50, quantized=False, arithmetic=8, block_map=None, key_lengths=None,
              dense_operations=None, return_lse=False, return_sparsity=False):
    """Computes softmax(q k^T scale) v over the blocks of 64 keys that matter. A GPU multiplies in 8 or 16 bits.

    q, k, v: [batch, heads, tokens, head_dim] (tensor_layout HND) or [batch, tokens, heads, head_dim] (NHD), float16 or bfloat16, on a CPU also float32.
        k and v may have fewer heads: a divisor of q's number. Neighboring heads of q then share one.
    topk, cdf, error or block_error: the rule that selects blocks, as one number or one per head; at most one of the four. The default is topk=0.12 with
        means and topk=0.5 with dropped="none". topk and cdf are in (0, 1], error and block_error in (0, 1000]. topk is a fraction of the blocks that a
        query sees, in causal calls too.
    dropped: the replacement of dropped blocks, "mean" (of 16 tokens) or "none".
    select: the ranking of blocks, by "error" (of the means) or by "mass". The default is "error" with means and "mass" with dropped="none".
    similarity, pv_threshold, text_tokens (number of text tokens at the end of q and k), key_lengths (int [batch]): see sparsereel/attention.h.
    arithmetic: bits in which a GPU multiplies, 8 or 16 (float16 or bfloat16, like q; not with quantized). A CPU computes in float32.
    quantized: computes every block.
    block_map: [batch, heads, ceil(queries / 64) or ceil(queries / 128), ceil(keys / 64)]. 0 drops a block. It replaces the selection.
    dense_operations: GPU calls with fewer operations (default 6e10) use torch's full attention, which is faster for them. 0 turns this off.

    Returns out, followed by the requested results: lse [batch, heads, tokens], and the share of the work that was left out.
    Raises ValueError for arguments that do not fit, RuntimeError if a gradient is asked for, and AttentionError if the library fails.
    """
    _check_tensors(q, k, v, tensor_layout)
    chosen = {name: value for name, value in (('topk', topk), ('cdf', cdf), ('error', error), ('block_error', block_error)) if value is not None}
    if len(chosen) > 1:
        raise ValueError(f'{" and ".join(chosen)}: pass one of them')
    if return_sparsity and key_lengths is not None:
        raise ValueError('return_sparsity with key_lengths: blocks that key_lengths hides are not counted, so the sparsity is unknown; leave one out')
    selection, = chosen or ('topk',)
    dropped_ = _name(dropped, lib.DROPPED, 'dropped')
    ranking = _name(select or ('error' if dropped == 'mean' else 'mass'), lib.RANKINGS, 'select')
    heads = q.size(1 if tensor_layout == 'HND' else 2)
    bound = {'error': _ERROR if error is None else error} if block_error is None else {'block_error': block_error}
    policy = _policy(heads, lib.SELECTIONS[selection], topk=(_TOPK if dropped == 'mean' else _TOPK_WITHOUT_MEANS) if topk is None else topk,
                     cdf=_CDF if cdf is None else cdf, **bound, similarity=similarity, pv_threshold=pv_threshold)
    if dense_operations is None:
        dense_operations = _DENSE_OPERATIONS
    out, lse, counts = torch.ops.sparsereel.attention(q, k, v, tensor_layout, 0.0 if scale is None else float(scale), bool(is_causal), int(text_tokens),
                                                      bool(quantized), policy, dropped_, ranking, float(dense_operations), block_map, key_lengths,
                                                      bool(return_lse), _arithmetic(arithmetic))
    results = [out]
    if return_lse:
        results.append(lse)
    if return_sparsity:
        results.append(_sparsity(counts))
    return out if len(results) == 1 else tuple(results)


def _arithmetic(bits):
    if bits not in (8, 16):
        raise ValueError(f'arithmetic is {bits!r}: pass 8 or 16')
    return int(bits)


def _sparsity(counts):
    """Returns the share of the Q.K and P.V products that was left out. Waits for the device, because it reads its counts."""
    kept, skipped, *_, total = counts.tolist()
    return 1 - (2 * kept - skipped) / (2 * total)


def token_order(frames, height, width, order='hilbert', inverse=False, device=None):
    """Returns a token order as int64 [frames * height * width]: for each place in the sequence, the native index (t * height + h) * width + w of the token there.

    If x [batch, tokens, ...] is in native order, x[:, result] is in the new order. With inverse=True, returns the place of each native index, which undoes the order.
    order: hilbert, native, time-major or morton. Raises ValueError for another name, and AttentionError for a grid that the library refuses."""
    constant = _name(order, lib.ORDERS, 'order')
    lib.check(lib.LIBRARY.sparsereel_token_order(constant, frames, height, width, None, None))  # raises an error for a bad grid
    places = torch.empty(frames * height * width, dtype=torch.int64)
    pointers = (None, _pointer(places, c_int64)) if inverse else (_pointer(places, c_int64), None)
    lib.check(lib.LIBRARY.sparsereel_token_order(constant, frames, height, width, *pointers))
    return places.to(device) if device is not None else places
