// RMS norm over the channels of a pixel, alone and with SiLU.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// Returns x / max(|x|, 1e-12) * sqrt(C) * gamma, where |x| is the Euclidean norm of a pixel's channels. x [.., C],
/// gamma [C]. Rounded once, to x's dtype.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gamma);

/// out = silu(rms_norm(x + input_bias, gamma)). x and out [F, H, W, C] have the same dtype and are contiguous, except
/// that frames of out may lie farther apart. input_bias, [C] or undefined, is that of the convolution before if
/// carries_biases(x).
void rms_norm_silu(const at::Tensor& x, const at::Tensor& gamma, at::Tensor out, const at::Tensor& input_bias = {});

}  // namespace sparsereel::models
