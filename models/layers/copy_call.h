// Binds the copies of layers/cuda to tensors.
#pragma once

#include <span>

#include "attention/cuda/launch.h"
#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// See copy_all(). Copies nothing and returns false if a tensor is not on a GPU or has runs that are no multiple of 16
/// bytes.
bool copy_on_cuda(std::span<const StridedCopy> copies);

/// Copies with the GPU's copy engines, on a stream, so that no multiprocessor is occupied. Returns false in the same
/// cases.
bool copy_by_engines(std::span<const StridedCopy> copies, attention::cuda::Stream stream);

}  // namespace sparsereel::models
