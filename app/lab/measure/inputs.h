// Random q, k and v to measure on: plain normal data, or data with the traits of a trained model's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "app/lab/measure/workloads.h"

namespace sparsereel::app {

/// q, k and v [B, N, H, D], contiguous; k and v with their own H.
struct Inputs {
  at::Tensor q, k, v;
};

/// How many copies make the inputs come from memory and not from a cache when they take turns: together 200 MB, which
/// no GPU's L2 cache holds; 1 where one copy is that large, 256 at most.
int64_t copies_beyond_cache(const Shape& shape, at::ScalarType dtype);

/// Bytes that `copies` of the inputs take.
double input_bytes(const Shape& shape, at::ScalarType dtype, int64_t copies);

/// `copies` independent inputs, the same for the same seed on the same device.
std::vector<Inputs> make_inputs(const Shape& shape, DataKind data, at::ScalarType dtype, at::Device device,
                                int64_t copies, uint64_t seed);

}  // namespace sparsereel::app
