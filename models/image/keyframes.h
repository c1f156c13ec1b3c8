// Pictures that a video must show at its start or at its end, for models that take them as tokens.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/image/resample.h"

namespace sparsereel::models {

/// Returns the pictures in the size of the video, in the same order. The first picture is stretched() (resize.h); it is
/// not cropped, because the video takes its aspect ratio. All other pictures are covered(). Throws Error (field
/// last_image) if one of them would have more than kMostImagePixels when it is scaled to cover the video, because its
/// aspect ratio is too different from the video's.
std::vector<Picture> keyframe_pictures(const std::vector<Picture>& pictures, int64_t height, int64_t width);

/// Throws the error of keyframe_pictures() for a picture of this size that is not the first. Needs only the size, so it
/// can be called before the picture is read. `file` is the picture's name, for the error.
void check_covers(int64_t picture_height, int64_t picture_width, int64_t height, int64_t width,
                  const std::string& file = {});

/// Returns time x latents + (1 - time) x noise in fp32. The noise comes from `generator`, which must be a CPU's. At
/// time 1 there is no noise; models use a time slightly below 1 for keyframes.
at::Tensor noised_keyframe(const at::Tensor& latents, double time, at::Generator& generator);

}  // namespace sparsereel::models
