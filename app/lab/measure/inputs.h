// Makes random q, k and v to measure on: normally distributed data, or data with properties of a trained model's q, k
// and v.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "app/lab/measure/workloads.h"

namespace sparsereel::app {

/// The inputs of attention: q, k and v [B, N, H, D], contiguous; k and v may have fewer heads than q.
struct Inputs {
  at::Tensor q, k, v;
};

/// Returns how many copies of the inputs must take turns so that each is read from memory and not from a cache.
/// Together the copies have at least 200 MB, which is more than any GPU's L2 cache. Returns 1 if a single copy is that
/// large, and never more than 256.
int64_t copies_beyond_cache(const Shape& shape, at::ScalarType dtype);

/// Returns the bytes of so many copies of q, k and v.
double input_bytes(const Shape& shape, at::ScalarType dtype, int64_t copies);

/// Returns `copies` independent inputs. Equal seeds give equal inputs on the same device.
std::vector<Inputs> make_inputs(const Shape& shape, DataKind data, at::ScalarType dtype, at::Device device,
                                int64_t copies, uint64_t seed);

}  // namespace sparsereel::app
