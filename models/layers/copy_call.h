// Binds the copies of layers/cuda to tensors.
#pragma once

#include <span>

#include "attention/cuda/launch.h"
#include "models/layers/strided_copy.h"

namespace sparsereel::models {

/// Copies as copy_all() does. Copies nothing and returns false unless all tensors are on a GPU and consist of runs of
/// 16 bytes.
bool copy_on_cuda(std::span<const StridedCopy> copies);

/// Copies on a stream with the GPU's copy engines, which leaves multiprocessors free. Returns false as copy_on_cuda()
/// does.
bool copy_by_engines(std::span<const StridedCopy> copies, attention::cuda::Stream stream);

}  // namespace sparsereel::models
