// Parses the scheduler_config.json of flow-matching models. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// Parses a UniPCMultistepScheduler of second order with flow sigmas. Throws Error naming `file` and the field.
SchedulerConfig parse_unipc_config(const nlohmann::json& json, const std::string& file);
/// Parses a DPMSolverMultistepScheduler for DPM-Solver++ of second order with flow sigmas. Throws the same errors.
SchedulerConfig parse_flow_dpm_config(const nlohmann::json& json, const std::string& file);
/// Parses a FlowMatchEulerDiscreteScheduler. Throws the same errors.
SchedulerConfig parse_flow_euler_config(const nlohmann::json& json, const std::string& file);
/// Parses a FlowMatchLCMScheduler that keeps the size of the latents. Throws the same errors.
SchedulerConfig parse_flow_lcm_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
