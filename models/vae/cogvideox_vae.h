// CogVideoX's VAE.
#pragma once

#include <memory>

#include "models/vae/vae.h"

namespace sparsereel::models {

/// As load_vae() of components.h.
std::unique_ptr<Vae> load_cogvideox_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                        VaeParts parts = VaeParts::decoder);

}  // namespace sparsereel::models
