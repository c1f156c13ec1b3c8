// The noise schedules of flow matching (Lipman et al., arXiv:2210.02747): a sample is (1 - sigma) clean + sigma noise,
// on the straight line between the two, and the model predicts the line's slope, noise - clean.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// A run's noise levels. A shift above 1 spends more of the steps where there is much noise (arXiv:2403.03206): sigma
/// becomes shift sigma / (1 + (shift - 1) sigma).
struct FlowSchedule {
  std::vector<double> timesteps;  // as the reference rounds them
  at::Tensor sigmas;              // [steps + 1] fp32 on the CPU, falling to 0, or where inverted rising to 1
};

/// FlowMatchEulerDiscreteScheduler's, whose timesteps are fractions. Throws Error naming the field, flow_shift or
/// sigmas, that makes levels that are no numbers.
FlowSchedule euler_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// UniPCMultistepScheduler's with use_flow_sigmas, whose timesteps are whole. Throws Error naming the field, flow_shift
/// or sigmas, that leaves no room between two levels.
FlowSchedule unipc_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// DPMSolverMultistepScheduler's with use_flow_sigmas, likewise. It begins a training step below pure noise.
FlowSchedule dpm_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);

}  // namespace sparsereel::models
