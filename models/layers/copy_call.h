// Copies tensors with the copy kernels of layers/cuda.
#pragma once

#include <span>

#include "attention/cuda/launch.h"
#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// Copies as copy_all() does. Copies nothing and returns false unless all tensors are on a GPU, and their contiguous
/// pieces are multiples of 16 bytes, aligned to 16 bytes.
bool copy_on_cuda(std::span<const StridedCopy> copies);

/// Copies on a stream with the GPU's copy engines, which leaves the multiprocessors free. Copies nothing and returns
/// false in the cases in which copy_on_cuda() does.
bool copy_by_engines(std::span<const StridedCopy> copies, attention::cuda::Stream stream);

}  // namespace sparsereel::models
