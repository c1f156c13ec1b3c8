// Binds the elementwise kernels of layers/cuda to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/layers/activation.h"
#include "models/layers/linear_layer.h"
#include "models/layers/norm_vectors.h"

namespace sparsereel::models {

/// Whether the kernels below take x [B, N, C] as a residual: fp16 or bf16 on a GPU, C a multiple of 8 up to 5120, rows
/// that start on 16 bytes.
bool has_norm_kernel(const at::Tensor& x);

/// Where update is defined, x += gates * update in place; then norm(x) * (1 + scale) + shift. modulation null: the norm
/// alone. fp8: rounded to x's dtype and then as quantize_rows() does.
Activation norm_modulate_on_cuda(const at::Tensor& x, const at::Tensor& update, const JointModulation* gates,
                                 const Norm& norm, double eps, int64_t video_tokens, const JointModulation* modulation,
                                 bool fp8 = false);

/// Where update is defined, x += rms_norm_modulate(update, update_eps, gate) in place; then, where factor is defined,
/// rms_norm_modulate(x, eps, factor). fp8: as above. x as has_norm_kernel() says.
Activation rms_norm_on_cuda(const at::Tensor& x, const at::Tensor& update, double update_eps, const at::Tensor& gate,
                            double eps, const at::Tensor& factor, bool fp8 = false);

void add_gated_on_cuda(const at::Tensor& x, const at::Tensor& update, int64_t video_tokens,
                       const JointModulation& modulation);

/// Whether quantize_on_cuda() takes x [.., in]: fp16 or bf16 on a GPU, in a multiple of 8 up to 16384.
bool has_quantize_kernel(const at::Tensor& x);

/// quantize_rows(), of gelu(x) by the tanh approximation, rounded to x's dtype, where asked for.
Activation quantize_on_cuda(const at::Tensor& x, bool gelu);

/// Whether swiglu_on_cuda() takes x [.., 2 F]: fp16 or bf16 on a GPU, contiguous, F a multiple of 8 up to 16384.
bool has_swiglu_kernel(const at::Tensor& x);

/// a * silu(b) [.., F] of x = a and, behind it, b; fp8: rounded to x's dtype and then as quantize_rows() does.
Activation swiglu_on_cuda(const at::Tensor& x, bool fp8);

/// Whether project_on_cuda() takes x [B, in] and these layers: fp16 or bf16 on a GPU, B up to 4, up to 4 layers, in a
/// multiple of 8.
bool has_projection_kernel(const at::Tensor& x, at::ArrayRef<const Linear*> layers);

/// fp32 [B, out] of each layer.
std::vector<at::Tensor> project_on_cuda(const at::Tensor& x, at::ArrayRef<const Linear*> layers);

}  // namespace sparsereel::models
