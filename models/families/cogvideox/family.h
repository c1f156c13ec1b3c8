// CogVideoX's entry in the table of families. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family cogvideox_family();

Part cogvideox_transformer_part();
Part cogvideox_vae_part();

/// Parses the scheduler_config.json of either sampler of CogVideoX. Throws Error naming `file` and the field.
SchedulerConfig parse_cogvideox_scheduler_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
