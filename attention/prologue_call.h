// Binds the CUDA kernels of the prologue to tensors.
#pragma once

#include "attention/attention.h"
#include "attention/cuda_tensors.h"

namespace sparsereel::attention {

/// Returns the prologue without weights and biases. `kept` keeps the tensors behind its pointers alive.
cuda::Prologue unweighted_prologue(const Prologue& from, Kept& kept);

/// Returns scratch memory for the moments of `tokens` tokens; undefined if the prologue needs none.
at::Tensor moments_for(int64_t tokens, const cuda::Prologue& prologue, const at::Tensor& like);

/// Returns true if prologue_on_cuda() takes x [B, N, H, D]: fp16 or bf16 on a GPU, D a multiple of 16 up to 256.
bool has_prologue_kernel(const at::Tensor& x);

/// Returns x after the prologue with the norm of q or of k, contiguous. The last text_tokens use the text's weights.
at::Tensor prologue_on_cuda(const Prologue& prologue, const at::Tensor& x, const RowNorm& norm, int64_t text_tokens);

/// Implements token_moments() for x for which has_prologue_kernel() holds.
at::Tensor moments_on_cuda(const Prologue& prologue, const at::Tensor& x);

}  // namespace sparsereel::attention
