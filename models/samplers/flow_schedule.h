// The noise schedules of flow matching (Lipman et al., arXiv:2210.02747). A sample is (1 - sigma) clean + sigma noise,
// on a straight line between the two. The model predicts the slope of that line, noise - clean.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// A run's noise levels. The shift maps sigma to shift sigma / (1 + (shift - 1) sigma). A shift above 1 spends more of
/// the steps at high noise (arXiv:2403.03206).
struct FlowSchedule {
  std::vector<double> timesteps;  // as the reference rounds them
  at::Tensor sigmas;              // fp32 CPU [steps + 1], falling to 0, or rising to 1 if inverted
};

/// Returns the schedule of FlowMatchEulerDiscreteScheduler and FlowMatchLCMScheduler; timesteps are fractional. Throws
/// Error naming flow_shift or sigmas if that field makes levels infinite or NaN.
FlowSchedule euler_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// Returns UniPCMultistepScheduler's schedule with use_flow_sigmas; timesteps are whole. Throws Error naming flow_shift
/// or sigmas if that field leaves no room between two levels.
FlowSchedule unipc_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// Returns DPMSolverMultistepScheduler's schedule with use_flow_sigmas; timesteps are whole. Throws Error as
/// unipc_flow_schedule() does. The schedule begins one training step below pure noise.
FlowSchedule dpm_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// Returns the schedule of models whose timesteps are 1 - sigma, in fp32: evenly spaced levels from 1 to the clean end,
/// then shifted. Throws Error as unipc_flow_schedule() does.
FlowSchedule data_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);

}  // namespace sparsereel::models
