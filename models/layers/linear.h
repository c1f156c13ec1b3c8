// Linear layers, alone and with the activation that follows them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/weights/weights.h"

namespace sparsereel::models {

/// x [.., in] -> [.., out], x's dtype: x weight^T + bias. fp32 on a CPU goes through oneDNN where torch has it: its
/// AVX-512 code runs on every vendor's processors, MKL's (behind at::linear) only on Intel's.
at::Tensor linear(const at::Tensor& x, const Affine& layer);

/// gelu(linear(x)) by the tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415, section 2).
at::Tensor linear_gelu_tanh(const at::Tensor& x, const Affine& layer);

/// linear(x, layer) of each layer for a few rows x [B, in], such as the modulation vectors of a batch, whose cost is
/// reading the weights. fp16 and bf16 on a GPU are one launch and come back in fp32; else x's dtype.
std::vector<at::Tensor> linear_few_rows(const at::Tensor& x, at::ArrayRef<const Affine*> layers);

}  // namespace sparsereel::models
