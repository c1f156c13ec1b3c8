// Binds the elementwise kernels of vae/cuda to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/vae/norm_layers.h"
#include "models/vae/row_split.h"

namespace sparsereel::models {

/// Returns true if the kernels below accept activations like x [F, H, W, C]: contiguous fp32, fp16 or bf16 on a GPU, C
/// a multiple of 8 up to 2048.
bool has_vae_kernels(const at::Tensor& x);

/// Computes out = silu(group_norm(x + input_bias) * y + b). y and b [Fz, Hz, Wz, C] are in x's dtype; input_bias is [C]
/// or undefined; frames of out may lie farther apart. `rows`, here and below, is as in group_norm.h.
void spatial_norm_silu_on_cuda(const SpatialNorm& norm, double eps, const at::Tensor& x, const at::Tensor& input_bias,
                               const at::Tensor& y, const at::Tensor& b, const at::Tensor& out,
                               const RowSplit* rows = nullptr);

/// Computes group_norm_silu() of group_norm.h on a GPU.
void group_norm_silu_on_cuda(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& input_bias,
                             const at::Tensor& out, const RowSplit* rows = nullptr);

/// Computes video_norm_silu() of group_norm.h on a GPU, for a band of rows of a video.
void video_norm_silu_on_cuda(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& input_bias,
                             const at::Tensor& out, const RowSplit& rows);

/// Computes rms_norm_silu() of rms_norm.h on a GPU. input_bias is [C] or undefined.
void rms_norm_silu_on_cuda(const at::Tensor& x, const at::Tensor& input_bias, const at::Tensor& gamma,
                           const at::Tensor& out);

/// Computes x += residual + bias, where bias is [C] or undefined.
void add_residual_on_cuda(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias);

/// Repeats every pixel of x + bias `space` x `space` times (1 or 2). With `twice`, every frame appears twice, except
/// the first of an odd number of frames.
at::Tensor repeat_on_cuda(const at::Tensor& x, const at::Tensor& bias, int64_t space, bool twice);

}  // namespace sparsereel::models
