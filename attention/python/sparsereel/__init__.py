"""Block-sparse 8-bit attention for PyTorch. SpargeAttn's functions are also defined, under their own names; they use this attention."""
from ._attention import attention, token_order
from ._library import AttentionError
from ._published import block_sparse_sage2_attn_cuda, spas_sage2_attn_meansim_cuda, spas_sage2_attn_meansim_topk_cuda

__all__ = ['AttentionError', 'attention', 'block_sparse_sage2_attn_cuda', 'spas_sage2_attn_meansim_cuda', 'spas_sage2_attn_meansim_topk_cuda', 'token_order']
