// Weights that stay as their file has them until just before a product: ggml's packed blocks, 8-bit floats and
// integers.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/files/dtype.h"
#include "models/layers/parameters.h"

namespace sparsereel::models {

/// Whether unpack() takes rows of so many columns: of ggml's types whole blocks, of 8-bit numbers a multiple of 8.
bool can_unpack(Dtype dtype, int64_t columns);
/// Bytes of a row.
int64_t packed_bytes(Dtype dtype, int64_t columns);

/// bytes: uint8, the rows one after the other; scale: fp32 [all rows], by which each row is multiplied, or undefined.
/// [all rows, columns] in fp32, fp16 or bf16: each value rounded once. One launch for each of `stored` on a GPU.
at::Tensor unpack(const at::Tensor& bytes, const std::vector<StoredRows>& stored, const at::Tensor& scale,
                  at::ScalarType dtype);

}  // namespace sparsereel::models
