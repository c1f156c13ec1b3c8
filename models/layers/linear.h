// Linear layers, alone and with the activation that follows them.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/checkpoint/weights.h"

namespace sparsereel::models {

/// x [.., in] -> [.., out], x's dtype: x weight^T + bias. fp32 on a CPU goes through oneDNN where torch has it: its
/// AVX-512 code runs on every vendor's processors, MKL's (behind at::linear) only on Intel's.
at::Tensor linear(const at::Tensor& x, const Affine& layer);

/// gelu(linear(x)) by the tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415, section 2).
at::Tensor linear_gelu_tanh(const at::Tensor& x, const Affine& layer);

}  // namespace sparsereel::models
