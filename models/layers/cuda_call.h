// Runs the elementwise kernels of layers/cuda on tensors. If a kernel cannot be launched, these functions throw.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/layers/activation.h"
#include "models/layers/linear_layer.h"
#include "models/layers/norm_vectors.h"

namespace sparsereel::models {

/// Returns true if the kernels below accept x [B, N, C] as a residual: fp16 or bf16 on a GPU, C a multiple of 8 up to
/// 6144, rows aligned to 16 bytes.
bool has_norm_kernel(const at::Tensor& x);

/// Adds gates * update to x in place, if update is defined. Returns norm(x) * (1 + scale) + shift, or only norm(x) if
/// `modulation` is null. An 8-bit result is first rounded to x's dtype, then quantized.
Activation norm_modulate_on_cuda(const at::Tensor& x, const at::Tensor& update, const JointModulation* gates,
                                 const Norm& norm, double eps, int64_t video_tokens, const JointModulation* modulation,
                                 const RowFormat& format = {});

/// Adds rms_norm_modulate(update, update_eps, gate) to x in place, if update is defined. If factor is defined, returns
/// rms_norm_modulate(x, eps, factor) in `format`; otherwise returns x. has_norm_kernel(x) must be true.
Activation rms_norm_on_cuda(const at::Tensor& x, const at::Tensor& update, double update_eps, const at::Tensor& gate,
                            double eps, const at::Tensor& factor, const RowFormat& format = {});

/// Adds gate * update to x in place.
void add_gated_on_cuda(const at::Tensor& x, const at::Tensor& update, int64_t video_tokens,
                       const JointModulation& modulation);

/// Returns true if quantize_on_cuda() accepts x [.., in]: fp16 or bf16 on a GPU, where `in` is a multiple of 8 and at
/// most 16384.
bool has_quantize_kernel(const at::Tensor& x);

/// Returns x in an 8-bit format. With `gelu`, first applies gelu by the tanh approximation to x and rounds to x's
/// dtype. For int8, `in` must be a multiple of 16, and x may also be fp32; a column_scale, fp32 [in], multiplies x
/// first.
Activation quantize_on_cuda(const at::Tensor& x, const RowFormat& format, bool gelu = false,
                            const at::Tensor& column_scale = {});

/// Returns true if swiglu_on_cuda() accepts x [.., 2 F]: fp16 or bf16 on a GPU, contiguous, F a multiple of 8 up to
/// 16384.
bool has_swiglu_kernel(const at::Tensor& x);

/// Returns a * silu(b) [.., F] for x = (a, b). With fp8, the result is rounded to x's dtype, then quantized by
/// quantize_rows().
Activation swiglu_on_cuda(const at::Tensor& x, bool fp8);

/// Returns true if project_on_cuda() accepts x [B, in] and these layers: fp16 or bf16 on a GPU, at most 4 rows and 4
/// layers, unpacked weights of x's dtype, and an `in` that is a multiple of 8.
bool has_projection_kernel(const at::Tensor& x, at::ArrayRef<const Linear*> layers);

/// Returns fp32 [B, out] for each layer.
std::vector<at::Tensor> project_on_cuda(const at::Tensor& x, at::ArrayRef<const Linear*> layers);

}  // namespace sparsereel::models
