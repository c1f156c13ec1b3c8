// Rows in 8-bit floating point (e4m3: 4 bits of exponent, 3 of mantissa; Micikevicius et al., arXiv 2209.05433), each
// with a scale of its own, as large matrix products take them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/layers/activation.h"

namespace sparsereel::models {

/// x [.., in] in 8 bits: a row's largest value becomes 448, e4m3's largest; a row of zeros stays one.
Activation quantize_rows(const at::Tensor& x);

/// quantize_rows(gelu(x)) by the tanh approximation; fp16 and bf16 on a GPU in one pass. May overwrite x.
Activation gelu_tanh_quantize_rows_(at::Tensor& x);

/// x [.., in] times weight [out, in], both in 8 bits, the weight with a scale [out]: [.., out] in x.dtype. The GPU adds
/// up fast, with fewer bits than fp32 has; a CPU emulates it in fp32, slowly. bias [out] may be undefined.
at::Tensor fp8_product(const Activation& x, const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& bias);

/// Why the device has no such products; empty where it has.
std::string why_no_fp8(at::Device device);

}  // namespace sparsereel::models
