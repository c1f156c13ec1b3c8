// Pictures that a video must show at its start or at its end, for models that take them as tokens.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/image/resample.h"

namespace sparsereel::models {

/// Returns the pictures in the size of the video, in their order: the first one stretched(), all others covered()
/// (resize.h). The first one decides the shape of a video, so it is not cropped.
/// Throws Error (field last_image) if a picture other than the first one is so much longer or narrower than the video
/// that covering it would need a picture of more than kMostImagePixels.
std::vector<Picture> keyframe_pictures(const std::vector<Picture>& pictures, int64_t height, int64_t width);

/// Throws the error of keyframe_pictures() for a picture of this size, before its pixels are needed.
void check_covers(int64_t picture_height, int64_t picture_width, int64_t height, int64_t width);

/// Returns time x latents + (1 - time) x noise in fp32, with noise of latents' shape from the generator, a CPU's.
/// Models hold keyframes at a time just short of 1, at which nothing is noise.
at::Tensor noised_keyframe(const at::Tensor& latents, double time, at::Generator& generator);

}  // namespace sparsereel::models
