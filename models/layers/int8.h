// Rows of 8-bit integers with one scale per row. Their matrix products are computed exactly in integers. Before
// rounding, groups of columns of weight and input are rotated (rotation.h), which spreads a column of large values over
// its group.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "models/layers/activation.h"
#include "models/layers/linear_layer.h"

namespace sparsereel::models {

/// Quantized rows. values * scale approximates x after its rotation.
struct Int8Rows {
  at::Tensor values;     // int8 [rows, columns], from -128 to 127
  at::Tensor scale;      // fp32 [rows]
  int64_t rotation = 0;  // number of columns of a rotated group; 0 if the columns are not rotated
};

/// Quantizes x [.., columns]. The largest absolute value of a row becomes 127. Values are rounded to the nearest
/// integer, ties to even. On a GPU, the rotation must be 0, 16, 64 or 256, and `columns` a multiple of 16. A row with
/// NaN or infinity gets the scale NaN, so that its products are NaN too.
Int8Rows quantize_int8(const at::Tensor& x, int64_t rotation);

/// Quantizes a weight [out, in], rotated in groups of the largest power of 4 from 16 to 256 that divides `in`. The
/// weight is not rotated if there is no such power, or if rotation would make the weight's rounding error clearly
/// larger.
Int8Rows quantize_int8_weight(const at::Tensor& weight);

/// Returns true if linear() multiplies x by this layer in integers. All of the layer's rows must have
/// StoredRows::multiplies set. On a GPU, x must also be fp16, bf16 or already int8, and the layer's sizes multiples of
/// 16.
bool multiplies_in_int8(const Activation& x, const Linear& layer);

/// Returns the rotation with which x [.., in] can be quantized once for all parts of the layer (linear_layer.h: rows)
/// on a GPU; 0 for no rotation. Returns nullopt if the layer must get x in x's own dtype: on a CPU, with LoRAs, or if
/// the parts need different rotations or column scales.
std::optional<int64_t> shared_rotation(const at::Tensor& x, const Linear& layer);

/// Returns x weight^T + bias [.., out] in x's dtype, for a layer that multiplies in int8. x is quantized once for
/// consecutive parts of the layer with the same rotation. The changes by LoRAs are computed from the unquantized x and
/// added: in fp32 on a CPU, in x's dtype on a GPU.
at::Tensor int8_linear(const Activation& x, const Linear& layer);

}  // namespace sparsereel::models
