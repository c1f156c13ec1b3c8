// Binds the copies of layers/cuda to tensors.
#pragma once

#include <span>

#include "attention/cuda/launch.h"
#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// See copy_all(). False, and nothing is copied, where one is not of a GPU's runs of 16 bytes.
bool copy_on_cuda(std::span<const StridedCopy> copies);

/// By the GPU's copy engines, on a stream: no multiprocessor is taken for them. False likewise.
bool copy_by_engines(std::span<const StridedCopy> copies, attention::cuda::Stream stream);

}  // namespace sparsereel::models
