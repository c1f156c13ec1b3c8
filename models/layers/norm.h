// Layer and RMS normalisation; the former also with the adaptive shift, scale and gate of diffusion transformers, over
// one sequence of two parts.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/activation.h"
#include "models/layers/norm_vectors.h"

namespace sparsereel::models {

/// norm(x) over the last dimension. Same dtype and shape, contiguous.
at::Tensor layer_norm(const at::Tensor& x, const Norm& norm, double eps);

/// x / sqrt(mean(x^2) + eps) * weight over the last dimension, weight [C] (Zhang and Sennrich, arXiv 1910.07467). The
/// quotient is computed in fp32 and rounded to the weight's dtype, which is the result's.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// All below compute in fp32 and round once, at the end: in one pass for fp32 on a CPU and for fp16 and bf16 on a GPU
// (has_norm_kernel() says which tensors). Modulation vectors may be fp32 whatever x is.

/// norm(x) * (1 + scale) + shift, each part of x [B, N, C] by its own vectors (Peebles and Xie, arXiv 2212.09748,
/// adaLN). text may be left undefined where video_tokens = N.
at::Tensor layer_norm_modulate(const at::Tensor& x, const Norm& norm, double eps, int64_t video_tokens,
                               const JointModulation& modulation);

/// x += gate * update, in place, each part of x and update [B, N, C] by its own gate. No gate is defined: x += update.
void add_gated_(at::Tensor& x, const at::Tensor& update, int64_t video_tokens, const JointModulation& modulation);

/// add_gated_(x, update, video_tokens, gates), then layer_norm_modulate(x, norm, eps, video_tokens, modulation).
at::Tensor add_gated_norm_modulate_(at::Tensor& x, const at::Tensor& update, const JointModulation& gates,
                                    const Norm& norm, double eps, int64_t video_tokens,
                                    const JointModulation& modulation);

/// x / sqrt(mean(x^2) + eps) * factor, x [B, N, C] by each batch entry's factor [B, C].
at::Tensor rms_norm_modulate(const at::Tensor& x, double eps, const at::Tensor& factor);

/// x += rms_norm_modulate(update, eps, gate), in place.
void add_rms_normed_(at::Tensor& x, const at::Tensor& update, double eps, const at::Tensor& gate);

/// add_rms_normed_(x, update, update_eps, gate) where update is defined, then rms_norm_modulate(x, eps, factor): in one
/// pass on a GPU. fp8: its quantize_rows().
Activation add_rms_normed_modulate_(at::Tensor& x, const at::Tensor& update, double update_eps, const at::Tensor& gate,
                                    double eps, const at::Tensor& factor, bool fp8 = false);

/// quantize_rows() of add_gated_norm_modulate_(), or where update is undefined of layer_norm_modulate(): one pass where
/// those are one, with the same bits as result.
Activation norm_modulate_fp8_(at::Tensor& x, const at::Tensor& update, const JointModulation& gates, const Norm& norm,
                              double eps, int64_t video_tokens, const JointModulation& modulation);

}  // namespace sparsereel::models
