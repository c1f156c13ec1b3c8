// Makes pictures of tensors, and of random colours.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/image/resample.h"
#include "models/request/images.h"

namespace sparsereel::models {

/// image fp32 [height, width, 3] in 0..1, rounded to 8 bits. Throws Error where it holds NaN or Inf.
Picture picture_of(const at::Tensor& image);

/// A smooth picture of random colours, for models with random weights.
Picture make_up_image(int64_t height, int64_t width, uint64_t seed);

}  // namespace sparsereel::models
