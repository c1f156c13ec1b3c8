// A picture -> what of a video is known before it is denoised.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "models/dit/conditioning.h"
#include "models/video/plan.h"
#include "models/video/spec.h"

namespace sparsereel::models {

/// Makes latents [1, C, 1, h, w] the first ones of the plan's video, which stay as they are.
void keep_first_frame(Conditioning& conditioning, const at::Tensor& latents, const Plan& plan, const ModelSpec& spec);

/// Draws the latents that are a mean until then: the mean and, times their deviation, noise in this dtype from the
/// generator. Nothing where there are none.
void draw_latents(Conditioning& conditioning, LatentLayout layout, at::ScalarType dtype, at::Generator& generator);

}  // namespace sparsereel::models
