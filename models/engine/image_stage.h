// A picture -> what of a video is known before it is denoised.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/dit/conditioning.h"
#include "models/video/plan.h"
#include "models/video/spec.h"

namespace sparsereel::models {

/// image fp32 [H, W, 3] in 0..1 of any size -> [1, 3, 1, height, width] in [-1, 1], stretched to it.
at::Tensor fit_image(const at::Tensor& image, int64_t height, int64_t width);

/// Makes latents [1, C, 1, h, w] the first ones of the plan's video, which stay as they are.
void keep_first_frame(Conditioning& conditioning, const at::Tensor& latents, const Plan& plan, const ModelSpec& spec);

}  // namespace sparsereel::models
