// Makes pictures from tensors, and pictures of random colors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/image/resample.h"

namespace sparsereel::models {

/// Converts an image, fp32 [height, width, 3] in 0..1, to 8 bits. Throws Error if it holds NaN or Inf.
Picture picture_of(const at::Tensor& image);

/// Returns a smooth picture of random colors, for models with random weights.
Picture make_up_image(int64_t height, int64_t width, uint64_t seed);

}  // namespace sparsereel::models
