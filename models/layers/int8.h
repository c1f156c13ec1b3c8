// Rows of 8-bit integers with a scale each, for matrix products that are exact in integers. The columns of weight and
// input are first rotated (rotation.h), which spreads a column of large values over its group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "models/layers/activation.h"
#include "models/layers/linear_layer.h"

namespace sparsereel::models {

/// Quantized rows: x, rotated, is about values * scale.
struct Int8Rows {
  at::Tensor values;     // int8 [rows, columns], from -128 to 127
  at::Tensor scale;      // fp32 [rows]
  int64_t rotation = 0;  // columns of a rotated group; 0 if the columns are not rotated
};

/// Quantizes x [.., columns]. The largest value of a row becomes 127. Values are rounded to the nearest integer, ties
/// to even. On a GPU, the rotation is 0, 16, 64 or 256, and `columns` a multiple of 16. A row with NaN or
/// infinity gets the scale NaN, so that it makes NaN in products too.
Int8Rows quantize_int8(const at::Tensor& x, int64_t rotation);

/// Quantizes a weight [out, in], rotated in groups of the largest power of 4 from 16 to 256 that divides `in`. It is
/// not rotated if there is no such power, or if rotation would make its own error clearly larger.
Int8Rows quantize_int8_weight(const at::Tensor& weight);

/// Returns true if linear() multiplies x by this layer in integers: on a CPU, and on a GPU if x is fp16 or bf16 and the
/// layer's sizes are multiples of 16.
bool multiplies_in_int8(const Activation& x, const Linear& layer);

/// Returns the rotation of int8 rows that serve all parts of the layer on a GPU, 0 for none. Returns nothing if the
/// layer must get x [.., in] in its own dtype: on a CPU, with LoRAs, or if its parts differ.
std::optional<int64_t> shared_rotation(const at::Tensor& x, const Linear& layer);

/// Returns x weight^T + bias [.., out] in x's dtype, for a layer that multiplies in int8. x is quantized once for all
/// parts of the layer that are rotated alike. Changes by LoRAs are computed from x as it is and added: in fp32 on a
/// CPU, in x's dtype on a GPU.
at::Tensor int8_linear(const Activation& x, const Linear& layer);

}  // namespace sparsereel::models
