// RMS norm over the channels of a pixel, alone and with SiLU.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// Returns x / max(|x|, 1e-12) * sqrt(C) * gamma for x [.., C] and gamma [C], where |x| is the Euclidean norm of a
/// pixel's channels. The result is rounded once, to x's dtype.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gamma);

/// Computes out = silu(rms_norm(x + input_bias, gamma)). x and out [F, H, W, C] have one dtype and are contiguous,
/// except that frames of out may lie farther apart. input_bias is [C] or undefined: the bias of the previous
/// convolution, if that left its bias out (carries_biases()).
void rms_norm_silu(const at::Tensor& x, const at::Tensor& gamma, at::Tensor out, const at::Tensor& input_bias = {});

}  // namespace sparsereel::models
