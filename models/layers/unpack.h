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
/// [all rows, columns] in fp32, fp16 or bf16: each value with its deltas in fp32, rounded once. One launch for each of
/// `stored` on a GPU; with deltas a product and a launch for some rows at a time.
at::Tensor unpack(const at::Tensor& bytes, const std::vector<StoredRows>& stored, const at::Tensor& scale,
                  at::ScalarType dtype);

/// A delta in fp32 as one of three times the rank in bf16, which a GPU multiplies many times faster: both factors as
/// sums of two numbers, all their products but the smallest, whose lack costs 2^-16 of the others.
LowRank in_bf16(const LowRank& delta);

}  // namespace sparsereel::models
