// Parses the scheduler_config.json of ancestral sampling. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// Parses diffusers' EulerAncestralDiscreteScheduler. Throws Error naming file and field.
SchedulerConfig parse_euler_ancestral_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
