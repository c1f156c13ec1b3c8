// Copies tensors with the copy kernels of layers/cuda.
#pragma once

#include <span>

#include "attention/cuda/launch.h"
#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// Copies as copy_all() does, and returns true. If a tensor is not on a GPU, or if its contiguous pieces are not
/// multiples of 16 bytes that are aligned to 16 bytes, copies nothing and returns false.
bool copy_on_cuda(std::span<const StridedCopy> copies);

/// Copies on a stream with the GPU's copy engines, which leaves the multiprocessors free. Copies nothing and returns
/// false in the cases in which copy_on_cuda() does.
bool copy_by_engines(std::span<const StridedCopy> copies, attention::cuda::Stream stream);

}  // namespace sparsereel::models
