// Runs the CUDA kernels of the prologue on tensors.
#pragma once

#include "attention/attention.h"
#include "attention/cuda_tensors.h"

namespace sparsereel::attention {

/// Returns scratch memory for the moments of `tokens` tokens; undefined if the prologue needs none.
at::Tensor moments_for(int64_t tokens, const cuda::Prologue& prologue, const at::Tensor& like);

/// Returns true if prologue_on_cuda() takes x [B, N, H, D]: fp16 or bf16 on a GPU, D a multiple of 16 up to 256.
bool has_prologue_kernel(const at::Tensor& x);

/// Returns x after the prologue, as a contiguous tensor. norm: prologue.of_queries() if x is q, or of_keys() if it is
/// k. The last text_tokens tokens use norm.text_weight if it is defined.
at::Tensor prologue_on_cuda(const Prologue& prologue, const at::Tensor& x, const RowNorm& norm, int64_t text_tokens);

/// Implements token_moments() if has_prologue_kernel(x) is true.
at::Tensor moments_on_cuda(const Prologue& prologue, const at::Tensor& x);

}  // namespace sparsereel::attention
