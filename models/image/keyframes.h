// Pictures that a video must show at its start or at its end, for models that take them as tokens.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "models/image/resample.h"

namespace sparsereel::models {

/// Returns the pictures in the size of the video, in their order: the first one stretched(), all others covered()
/// (resize.h). The first one decides the shape of a video, so it is not cropped.
std::vector<Picture> keyframe_pictures(const std::vector<Picture>& pictures, int64_t height, int64_t width);

/// Returns time x latents + (1 - time) x noise in fp32, with noise of latents' shape from the generator, a CPU's.
/// Models hold keyframes at a time just short of 1, at which nothing is noise.
at::Tensor noised_keyframe(const at::Tensor& latents, double time, at::Generator& generator);

}  // namespace sparsereel::models
