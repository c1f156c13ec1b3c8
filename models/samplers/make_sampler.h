// Creates samplers by their kind.
#pragma once

#include <cstdint>
#include <memory>

#include "models/samplers/sampler.h"
#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// Returns a sampler of the config's kind. Throws Error naming the field if there are more steps than
/// num_train_timesteps, or if noise levels are too close together (flow_schedule.h).
std::unique_ptr<Sampler> make_sampler(const SchedulerConfig& config, int64_t num_inference_steps);

}  // namespace sparsereel::models
