// Runs the elementwise kernels of vae/cuda on tensors. If a kernel cannot be launched, these functions throw.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/vae/norm_layers.h"
#include "models/vae/row_split.h"

namespace sparsereel::models {

/// Returns true if the kernels below accept activations like x [F, H, W, C]: contiguous fp32, fp16 or bf16 on a GPU, C
/// a multiple of 8 up to 2048.
bool has_vae_kernels(const at::Tensor& x);

/// Computes out = silu(group_norm(x + input_bias) * y + b). y and b are [Fz, Hz, Wz, C], in x's dtype, and are repeated
/// to x's size. input_bias is [C] or undefined. Frames of out may lie farther apart. If `rows` is not null, here and
/// below, x is this rank's band of rows.
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

/// Computes x += residual + bias in place. bias is [C] or undefined.
void add_residual_on_cuda(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias);

/// Returns x + bias with every pixel repeated `space` x `space` times; `space` is 1 or 2. With `twice`, every frame is
/// also repeated, except the first one if the number of frames is odd.
at::Tensor repeat_on_cuda(const at::Tensor& x, const at::Tensor& bias, int64_t space, bool twice);

}  // namespace sparsereel::models
