// Loads Mochi's transformer and VAE, and gives the colors of its latents.
#pragma once

#include <memory>

#include "models/transformer/loaded_transformer.h"
#include "models/vae/latent_preview.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Loads the transformer. `streaming` works as in loaded_transformer().
std::unique_ptr<LoadedTransformer> load_mochi_transformer(const Component& component, at::Device device,
                                                          WeightFormat format, const Streaming& streaming = {});

/// Loads the VAE's decoder, whatever `parts` says. The encoder is not supported, and load_vae() (engine/components.h)
/// refuses to load it.
std::unique_ptr<Vae> load_mochi_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                    VaeParts parts = VaeParts::decoder);

/// Returns the colors of latents of that many channels; null if they are unknown.
const LatentColors* mochi_latent_colors(int64_t channels);

}  // namespace sparsereel::models
