// Describes a copy between two strided tensors, for the functions of strided_copies.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// Two tensors of the same sizes and dtype.
struct StridedCopy {
  at::Tensor to, from;
};

}  // namespace sparsereel::models
