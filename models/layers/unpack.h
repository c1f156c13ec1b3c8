// Packed weights stay as their file stores them until just before a product: ggml's blocks, 8-bit floats and integers.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/files/dtype.h"
#include "models/layers/parameters.h"

namespace sparsereel::models {

/// Returns true if unpack() accepts rows with this number of columns: whole blocks for ggml's types, a multiple of 8
/// for 8-bit numbers.
bool can_unpack(Dtype dtype, int64_t columns);
/// Returns the bytes of a packed row.
int64_t packed_bytes(Dtype dtype, int64_t columns);

/// Unpacks packed rows: `bytes` (uint8, the rows one after the other) to [all rows, columns] in fp32, fp16 or bf16.
/// scale, fp32 [all rows], multiplies the rows; it may be undefined. Rotated columns are rotated back in fp32, which is
/// exact for integers, before their scales are applied. Changes by LoRAs are added in fp32, and each value is rounded
/// once. A GPU needs one launch for each of `stored`; with LoRAs, one product and one launch for some rows at a time.
at::Tensor unpack(const at::Tensor& bytes, const std::vector<StoredRows>& stored, const at::Tensor& scale,
                  at::ScalarType dtype);

/// Converts a LoRA's change from fp32 to bf16 with three times the rank, which a GPU multiplies many times faster. Both
/// factors become sums of two bf16 numbers. Only the smallest of their products is dropped, an error of 2^-16.
LowRank in_bf16(const LowRank& delta);

}  // namespace sparsereel::models
