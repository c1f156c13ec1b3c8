// Layer norm and RMS norm, also with the adaptive shift, scale and gate of diffusion transformers. The first
// video_tokens tokens of a sequence are video, the rest are text.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/activation.h"
#include "models/layers/norm_vectors.h"

namespace sparsereel::models {

/// Applies a layer norm, or an RMS norm if norm.rms is set, over the last dimension of x. The result is contiguous and
/// has x's dtype and shape.
at::Tensor layer_norm(const at::Tensor& x, const Norm& norm, double eps);

/// Returns x / sqrt(mean(x^2) + eps) * weight over the last dimension, weight [C] (Zhang and Sennrich, arXiv
/// 1910.07467). The quotient is computed in fp32 and rounded to the weight's dtype, in which the result is returned.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The functions below compute in fp32 and round once, at the end. For fp32 on a CPU, and for fp16 and bf16 on a GPU (if
// has_norm_kernel() is true), they read and write x in one pass over memory. Modulation vectors may be fp32 for any x.

/// Returns norm(x) * (1 + scale) + shift (adaLN; Peebles and Xie, arXiv 2212.09748). The video and the text of x [B, N,
/// C] have separate vectors. The text's vectors may be undefined if video_tokens = N.
at::Tensor layer_norm_modulate(const at::Tensor& x, const Norm& norm, double eps, int64_t video_tokens,
                               const JointModulation& modulation);

/// Adds gate * update to x in place. x and update are [B, N, C]; video and text have separate gates. If no gate is
/// defined, adds update.
void add_gated_(at::Tensor& x, const at::Tensor& update, int64_t video_tokens, const JointModulation& modulation);

/// Calls add_gated_(x, update, video_tokens, gates), then layer_norm_modulate(x, norm, eps, video_tokens, modulation).
at::Tensor add_gated_norm_modulate_(at::Tensor& x, const at::Tensor& update, const JointModulation& gates,
                                    const Norm& norm, double eps, int64_t video_tokens,
                                    const JointModulation& modulation);

/// Returns x / sqrt(mean(x^2) + eps) * factor, for x [B, N, C] and a factor [B, C] per batch entry.
at::Tensor rms_norm_modulate(const at::Tensor& x, double eps, const at::Tensor& factor);

/// Adds rms_norm_modulate(update, eps, gate) to x in place.
void add_rms_normed_(at::Tensor& x, const at::Tensor& update, double eps, const at::Tensor& gate);

/// Calls add_rms_normed_(x, update, update_eps, gate) if update is defined, then returns rms_norm_modulate(x, eps,
/// factor) in `format`. On a GPU, all of it takes one pass over memory; int8 takes a second one.
Activation add_rms_normed_modulate_(at::Tensor& x, const at::Tensor& update, double update_eps, const at::Tensor& gate,
                                    double eps, const at::Tensor& factor, const RowFormat& format = {});

/// Returns add_gated_norm_modulate_(), or layer_norm_modulate() if update is undefined, in `format`. Where those
/// functions take one pass, this does too. The result has the same bits as quantizing in a second pass.
Activation norm_modulate_quantize_(at::Tensor& x, const at::Tensor& update, const JointModulation& gates,
                                   const Norm& norm, double eps, int64_t video_tokens,
                                   const JointModulation& modulation, const RowFormat& format);

}  // namespace sparsereel::models
