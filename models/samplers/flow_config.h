// The scheduler_config.json of flow-matching models. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// UniPCMultistepScheduler's: second order, flow sigmas. Errors as those of the other parsers
/// (text/encoder/t5_config.h).
SchedulerConfig parse_unipc_config(const nlohmann::json& json, const std::string& file);
/// DPMSolverMultistepScheduler's: DPM-Solver++ of second order, flow sigmas.
SchedulerConfig parse_flow_dpm_config(const nlohmann::json& json, const std::string& file);
/// FlowMatchEulerDiscreteScheduler's.
SchedulerConfig parse_flow_euler_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
