// Open-Sora-Plan's row in the table of families. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family open_sora_plan_family();

/// Part::sizes_by_config and sizes_by_tensors of the transformer, and of the VAE.
Sizes open_sora_plan_sizes(const nlohmann::json& json, const std::string& file);
Sizes open_sora_plan_sizes(const TensorTable& tensors);
Sizes open_sora_plan_vae_sizes(const nlohmann::json& json, const std::string& file);
Sizes open_sora_plan_vae_sizes(const TensorTable& tensors);

}  // namespace sparsereel::models
