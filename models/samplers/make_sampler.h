// Kinds of samplers -> their classes and schedules.
#pragma once

#include <cstdint>
#include <memory>

#include "models/samplers/sampler.h"
#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// The sampler of the config's kind. Throws Error naming the field where the steps do not fit: more than
/// num_train_timesteps, or noise levels without room between them (flow_schedule.h).
std::unique_ptr<Sampler> make_sampler(const SchedulerConfig& config, int64_t num_inference_steps);

}  // namespace sparsereel::models
