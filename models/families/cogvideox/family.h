// CogVideoX's row in the table of families. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family cogvideox_family();

/// Part::sizes_by_config and sizes_by_tensors, and other_model, of the transformer, and of the VAE.
Sizes cogvideox_sizes(const nlohmann::json& json, const std::string& file);
Sizes cogvideox_sizes(const TensorTable& tensors);
std::string cogvideox_other_model(const TensorTable& tensors);
Sizes cogvideox_vae_sizes(const nlohmann::json& json, const std::string& file);
Sizes cogvideox_vae_sizes(const TensorTable& tensors);

/// The scheduler_config.json of both of its samplers. Errors as those of the other parsers (text/encoder/t5_config.h).
SchedulerConfig parse_cogvideox_scheduler_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
