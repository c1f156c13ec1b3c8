// Rows in 8-bit floating point (e4m3: 4 bits of exponent, 3 of mantissa; Micikevicius et al., arXiv 2209.05433) with
// one scale per row, for large matrix products. On a GPU, some functions also make rows of 8-bit integers (int8.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/layers/activation.h"

namespace sparsereel::models {

/// Quantizes x [.., in] to e4m3. The largest absolute value of a row becomes 448, the largest number of e4m3. A row of
/// zeros stays zero.
Activation quantize_rows(const at::Tensor& x);

/// Returns x [.., in] in this format. int8 needs fp16 or bf16 on a GPU and a rotation of at most 256 columns.
Activation in_format(const at::Tensor& x, const RowFormat& format);

/// Returns gelu(x) by the tanh approximation in an 8-bit format. On a GPU, this takes one pass over fp16 or bf16. May
/// overwrite x.
Activation gelu_tanh_quantize_rows_(at::Tensor& x, const RowFormat& format);

/// Returns the product of x [.., in] and weight [out, in], both in 8 bits, with the weight's scale [out]: [.., out] in
/// x.dtype. A GPU adds products in its fast mode, which has fewer bits than fp32. A CPU computes in fp32, slowly. bias
/// [out] may be undefined.
at::Tensor fp8_product(const Activation& x, const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& bias);

/// Returns the reason why the device has no products of 8-bit matrices, or an empty string if it has them.
std::string why_no_fp8(at::Device device);

/// Returns the format of 8-bit weights, "fp8" or "int8", whose products are faster on a device. These are fp8 on GPUs
/// for data centers from compute capability 9.0 on, and int8 elsewhere: GeForce GPUs multiply int8 at twice their rate
/// of fp8, GPUs below compute capability 8.9 have no fp8 products, and a CPU emulates them.
std::string faster_8_bits(at::Device device);

}  // namespace sparsereel::models
