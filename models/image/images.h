// The pictures that a video is made from.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// Pictures that a video begins and ends with: fp32 [H, W, 3] in 0..1, of any size; undefined: none.
struct Images {
  at::Tensor first{}, last{};
};

}  // namespace sparsereel::models
