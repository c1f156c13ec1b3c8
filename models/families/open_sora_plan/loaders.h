// Loads Open-Sora-Plan's transformer and VAE.
#pragma once

#include <memory>

#include "models/transformer/loaded_transformer.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Loads the transformer. `streaming` works as in loaded_transformer().
std::unique_ptr<LoadedTransformer> load_open_sora_plan_transformer(const Component& component, at::Device device,
                                                                   WeightFormat format,
                                                                   const Streaming& streaming = {});

/// Loads the VAE's decoder, whatever `parts` says. The encoder is not supported, and load_vae() (engine/components.h)
/// refuses to load it.
std::unique_ptr<Vae> load_open_sora_plan_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                             VaeParts parts = VaeParts::decoder);

}  // namespace sparsereel::models
