// Turns a picture into the pixels of an image encoder.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/image/processor_config.h"
#include "models/image/resample.h"

namespace sparsereel::models {

/// Returns fp32 [1, 3, crop_size, crop_size] on the CPU: the picture's center, normalized, as transformers'
/// CLIPImageProcessor does it with Pillow.
at::Tensor encoder_pixels(const Picture& picture, const ImageProcessorConfig& config);

}  // namespace sparsereel::models
