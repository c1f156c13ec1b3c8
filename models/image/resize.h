// A picture of any size -> what VAE encoders and image encoders take.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/image/resample.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// -> [1, 3, 1, height, width] in [-1, 1], fp32 on the CPU, by Lanczos' filter as Pillow applies it.
at::Tensor fit_image(const Picture& picture, int64_t height, int64_t width, ResizeRule rule);

/// -> [1, 3, side, side] in 0..1, fp32 on the CPU: its shorter edge becomes `side` by the bicubic filter as Pillow
/// applies it, and the middle of the longer one stays, as CLIPImageProcessor has it.
at::Tensor square_image(const Picture& picture, int64_t side);

}  // namespace sparsereel::models
