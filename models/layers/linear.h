// Linear layers, alone and with the activation that follows them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/layers/fp8.h"
#include "models/layers/linear_layer.h"

namespace sparsereel::models {

/// x [.., in] -> [.., out], x's dtype: x weight^T + bias. fp32 on a CPU goes through oneDNN where torch has it: its
/// AVX-512 code runs on every vendor's processors, MKL's (behind at::linear) only on Intel's. With a weight in 8 bits x
/// is quantised where it is not yet (quantize_rows()); 8-bit x needs such a weight.
at::Tensor linear(const Activation& x, const Linear& layer);

/// linear(x, layer), into out [B, N, out], a part of the rows of a tensor [B, M, out]: on a GPU without another pass.
void linear_out(const at::Tensor& out, const Activation& x, const Linear& layer);

/// gelu(linear(x)) by the error function (Hendrycks and Gimpel, arXiv 1606.08415, section 2).
at::Tensor linear_gelu(const Activation& x, const Linear& layer);

/// The same by the tanh approximation.
at::Tensor linear_gelu_tanh(const Activation& x, const Linear& layer);

/// linear(linear_gelu_tanh(x, in), out). A moved x is gone before the second product.
at::Tensor feed_forward_gelu_tanh(Activation x, const Linear& in, const Linear& out);

/// linear(a * silu(b), out), where linear(x, in) is a and, behind it, b (Shazeer, arXiv 2002.05202). What lies between
/// is one pass on a GPU.
at::Tensor feed_forward_swiglu(const Activation& x, const Linear& in, const Linear& out);

/// linear(x, layer) of each layer for a few rows x [B, in], such as the modulation vectors of a batch, whose cost is
/// reading the weights: [B, out] each, in x's dtype. Up to 4 rows and 4 layers of fp16 or bf16 on a GPU are one launch,
/// whose results are fp32.
std::vector<at::Tensor> linear_few_rows(const at::Tensor& x, at::ArrayRef<const Linear*> layers);

}  // namespace sparsereel::models
