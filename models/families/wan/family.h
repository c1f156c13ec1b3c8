// Wan's row in the table of families: 2.1 T2V 1.3B and 14B, I2V 14B and FLF2V 14B, 2.2 T2V A14B, I2V A14B and TI2V 5B.
// No torch.
#pragma once

#include <filesystem>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family wan_family();

/// Part::names of a transformer.
StoredNames wan_transformer_names();

/// Part::sizes_by_config and sizes_by_tensors of a transformer.
Sizes wan_sizes(const nlohmann::json& json, const std::string& file);
Sizes wan_sizes(const TensorTable& tensors);

/// Part::other_model.
std::string wan_other_model(const TensorTable& tensors);

/// Of the VAE, that of 2.1 and that of 2.2's small model.
StoredNames wan_vae_names();
Sizes wan_vae_sizes(const nlohmann::json& json, const std::string& file);
Sizes wan_vae_sizes(const TensorTable& tensors);

}  // namespace sparsereel::models
