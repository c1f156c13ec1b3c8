// The noise schedules of flow matching (Lipman et al., arXiv:2210.02747). A sample is (1 - sigma) clean + sigma noise,
// on a straight line between the two. The model predicts the slope of that line, noise - clean.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// A run's noise levels, after the shift, which maps sigma to shift * sigma / (1 + (shift - 1) * sigma). With a shift
/// above 1, more of the steps are at high noise (arXiv:2403.03206).
struct FlowSchedule {
  std::vector<double> timesteps;  // rounded as in the reference
  at::Tensor sigmas;              // fp32 CPU [steps + 1], falling to 0, or rising to 1 if inverted
};

/// Returns the schedule of FlowMatchEulerDiscreteScheduler and FlowMatchLCMScheduler; timesteps are fractional. Throws
/// Error (field flow_shift or sigmas) if levels are infinite or NaN.
FlowSchedule euler_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// Returns UniPCMultistepScheduler's schedule with use_flow_sigmas; timesteps are whole. Throws Error (field flow_shift
/// or sigmas) if two levels are too close together.
FlowSchedule unipc_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// Returns DPMSolverMultistepScheduler's schedule with use_flow_sigmas; timesteps are whole. Throws Error as
/// unipc_flow_schedule() does. The schedule begins one training step below pure noise.
FlowSchedule dpm_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);
/// Returns the schedule of models whose timesteps are 1 - sigma, computed in fp32. Its levels are evenly spaced from 1
/// to the clean end, then shifted. Throws Error as unipc_flow_schedule() does.
FlowSchedule data_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps);

}  // namespace sparsereel::models
