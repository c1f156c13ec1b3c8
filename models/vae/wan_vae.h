// Wan's VAE, of version 2.1 and of 2.2.
#pragma once

#include <memory>

#include "models/vae/vae.h"

namespace sparsereel::models {

/// As load_vae() of components.h.
std::unique_ptr<Vae> load_wan_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                  VaeParts parts = VaeParts::decoder);

}  // namespace sparsereel::models
