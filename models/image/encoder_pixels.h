// A picture -> the pixels that an image encoder takes.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/image/processor_config.h"

namespace sparsereel::models {

/// image fp32 [H, W, 3] in 0..1 of any size -> fp32 [1, 3, crop_size, crop_size] on the CPU: its centre, normalised,
/// as transformers' CLIPImageProcessor does it with Pillow.
at::Tensor encoder_pixels(const at::Tensor& image, const ImageProcessorConfig& config);

}  // namespace sparsereel::models
