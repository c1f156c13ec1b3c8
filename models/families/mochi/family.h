// Mochi's row in the table of families. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family mochi_family();

/// The names of the authors' files, which ComfyUI's keep: q, k and v in one matrix, the gates of a feed-forward before
/// what they gate, shifts before scales.
StoredNames mochi_transformer_names();
/// Those of the decoder, in a file of its own or with the encoder.
StoredNames mochi_vae_names();

/// Part::sizes_by_config and sizes_by_tensors of the transformer, and of the VAE.
Sizes mochi_sizes(const nlohmann::json& json, const std::string& file);
Sizes mochi_sizes(const TensorTable& tensors);
Sizes mochi_vae_sizes(const nlohmann::json& json, const std::string& file);
Sizes mochi_vae_sizes(const TensorTable& tensors);

}  // namespace sparsereel::models
