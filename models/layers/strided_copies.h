// Many copies at once, of strided tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace sparsereel::models {

/// Of the same sizes and dtype.
struct StridedCopy {
  at::Tensor to, from;
};

/// On a GPU one launch, of tensors that consist of runs of 16 bytes: copies that go over a link to another GPU then
/// stand beside those within the GPU's own memory. None may write what another one reads or writes.
void copy_all(std::span<const StridedCopy> copies);

}  // namespace sparsereel::models
