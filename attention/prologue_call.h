// Binds the CUDA kernels of the prologue to tensors.
#pragma once

#include "attention/attention.h"
#include "attention/cuda_tensors.h"

namespace sparsereel::attention {

/// The prologue without weights and biases; `kept` keeps what it points to.
cuda::Prologue unweighted_prologue(const Prologue& from, Kept& kept);

/// Scratch for the moments of so many tokens; undefined where the prologue needs none.
at::Tensor moments_for(int64_t tokens, const cuda::Prologue& prologue, const at::Tensor& like);

/// Whether prologue_on_cuda() takes x [B, N, H, D]: fp16 or bf16 on a GPU, D a multiple of 16 up to 256.
bool has_prologue_kernel(const at::Tensor& x);

/// prologue(x), contiguous, with this norm (q's or k's); the last text_tokens have the text's weights.
at::Tensor prologue_on_cuda(const Prologue& prologue, const at::Tensor& x, const RowNorm& norm, int64_t text_tokens);

/// token_moments() of an x for which has_prologue_kernel() holds.
at::Tensor moments_on_cuda(const Prologue& prologue, const at::Tensor& x);

}  // namespace sparsereel::attention
