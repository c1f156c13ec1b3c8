// Loads CogVideoX's transformer and VAE, and gives the colors of its latents.
#pragma once

#include <memory>

#include "models/transformer/loaded_transformer.h"
#include "models/vae/latent_preview.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Loads the transformer. `streaming` works as in loaded_transformer().
std::unique_ptr<LoadedTransformer> load_cogvideox_transformer(const Component& component, at::Device device,
                                                              WeightFormat format, const Streaming& streaming = {});

/// Loads the parts of the VAE that `parts` names.
std::unique_ptr<Vae> load_cogvideox_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                        VaeParts parts = VaeParts::decoder);

/// Returns the colors of latents of that many channels; null if they are unknown.
const LatentColors* cogvideox_latent_colors(int64_t channels);

}  // namespace sparsereel::models
