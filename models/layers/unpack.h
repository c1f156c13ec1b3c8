// Unpacks weights that stay in memory as their file stores them (ggml's blocks, 8-bit floats and integers) until just
// before a product.
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

/// Unpacks the rows `stored` from `bytes` (uint8) to [all rows, columns] in fp32, fp16 or bf16. scale, fp32 [all rows],
/// multiplies the rows; it may be undefined. Rotated columns are rotated back in fp32 before the scales are applied.
/// For integers, this is exact. Changes by LoRAs are added in fp32, and each value is rounded once. A GPU takes one
/// launch for each element of `stored`. With LoRAs or rotation, it unpacks some rows at a time, and each such part
/// takes several launches.
at::Tensor unpack(const at::Tensor& bytes, const std::vector<StoredRows>& stored, const at::Tensor& scale,
                  at::ScalarType dtype);

/// Converts a LoRA's change from fp32 to bf16 with three times the rank, which a GPU multiplies many times faster. Both
/// factors become sums of two bf16 numbers, a large and a small one. The product of the two small ones is dropped, a
/// relative error of 2^-16.
LowRank in_bf16(const LowRank& delta);

}  // namespace sparsereel::models
