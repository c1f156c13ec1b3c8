// Weights that stay as in their file until just before a product: ggml's packed blocks, 8-bit floats and integers.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/files/dtype.h"
#include "models/layers/parameters.h"

namespace sparsereel::models {

/// Returns true if unpack() accepts rows with this number of columns: whole blocks for ggml's types, a multiple of 8
/// for 8-bit numbers.
bool can_unpack(Dtype dtype, int64_t columns);
/// Returns the bytes of a row.
int64_t packed_bytes(Dtype dtype, int64_t columns);

/// Unpacks `bytes` (uint8, the rows one after the other) to [all rows, columns] in fp32, fp16 or bf16. scale, fp32 [all
/// rows], multiplies the rows; it may be undefined. Deltas are added in fp32, and each value is rounded once. A GPU
/// needs one launch for each of `stored`; with deltas a product and a launch for some rows at a time.
at::Tensor unpack(const at::Tensor& bytes, const std::vector<StoredRows>& stored, const at::Tensor& scale,
                  at::ScalarType dtype);

/// Converts a delta in fp32 to one in bf16 of three times the rank, which a GPU multiplies many times faster. Both
/// factors become sums of two numbers. Only their smallest product is dropped, an error of 2^-16.
LowRank in_bf16(const LowRank& delta);

}  // namespace sparsereel::models
