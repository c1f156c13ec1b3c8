// Loads CogVideoX's transformer and VAE.
#pragma once

#include <memory>

#include "models/transformer/denoiser.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// offload is as in load_denoiser().
std::unique_ptr<Denoiser> load_cogvideox_transformer(const Component& component, at::Device device, WeightFormat format,
                                                     bool offload = false);

/// See load_vae() in components.h.
std::unique_ptr<Vae> load_cogvideox_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                        VaeParts parts = VaeParts::decoder);

}  // namespace sparsereel::models
