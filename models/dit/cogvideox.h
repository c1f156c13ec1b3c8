// CogVideoX's denoiser.
#pragma once

#include <memory>

#include "models/dit/denoiser.h"

namespace sparsereel::models {

/// offload: as in load_denoiser().
std::unique_ptr<Denoiser> load_cogvideox_dit(const Component& component, at::Device device, WeightFormat format,
                                             bool offload = false);

}  // namespace sparsereel::models
