// Resizes pictures for VAE encoders and image encoders.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/image/processor_config.h"
#include "models/image/resample.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// Returns the picture as fp32 [1, 3, 1, height, width] in [-1, 1] on the CPU, resized by Pillow's Lanczos filter.
at::Tensor fit_image(const Picture& picture, int64_t height, int64_t width, ResizeRule rule);

/// Returns a picture of 8 bits as fp32 [1, 3, 1, height, width] in [-1, 1] on the CPU, in its own size.
at::Tensor frame_of(const Picture& picture);

/// Returns the picture resized to this size by Pillow's Lanczos filter. Does not keep the picture's aspect ratio.
Picture stretched(const Picture& picture, int64_t height, int64_t width);

/// Returns the center of the picture in this size. Before cropping, Pillow's Lanczos filter resizes the whole picture
/// so that it just covers this size. The resized height and width are rounded like Python's round().
Picture covered(const Picture& picture, int64_t height, int64_t width);

/// Returns the picture as fp32 [1, 3, side, side] in 0..1 on the CPU. Pillow's bicubic filter scales the shorter edge
/// to `side`, and the longer one is center-cropped, as in CLIPImageProcessor.
at::Tensor square_image(const Picture& picture, int64_t side);

/// Returns an image encoder's input, fp32 [1, 3, crop_size, crop_size] on the CPU: square_image(), normalized as by
/// transformers' CLIPImageProcessor.
at::Tensor encoder_pixels(const Picture& picture, const ImageProcessorConfig& config);

}  // namespace sparsereel::models
