// Wan's denoiser: Wan 2.1 and 2.2, text to video.
#pragma once

#include <memory>

#include "models/dit/denoiser.h"

namespace sparsereel::models {

/// Latents [B, C, F, H, W]. offload: as in load_denoiser().
std::unique_ptr<Denoiser> load_wan_dit(const Component& component, at::Device device, WeightFormat format,
                                       bool offload = false);

}  // namespace sparsereel::models
