// The noise schedule that DDIM and DPM-Solver share: cumulative alphas, timesteps, and the clean sample that a
// prediction means.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// Alphas are kept and handed out as tensors on the CPU in the dtype the reference computes them in (float64 for
/// scaled_linear, float32 otherwise), because scalars of both widths mix in the samplers' formulas and their rounding
/// shows in the result.
class NoiseSchedule {
 public:
  /// `config` as its parser lets it through.
  explicit NoiseSchedule(const SchedulerConfig& config);

  /// Timesteps of a run of 1 to num_train_timesteps steps, noisiest first, whole numbers. Throws Error where they leave
  /// the schedule.
  std::vector<double> timesteps(int64_t num_inference_steps) const;
  /// Cumulative product of alphas, 0-dimensional; for a negative timestep (the clean end) 1, or that of timestep 0
  /// where set_alpha_to_one is off.
  at::Tensor alpha_prod(double timestep) const;
  /// The clean sample x0 that `prediction` (epsilon, sample or v_prediction) means for `sample` at `timestep`.
  at::Tensor predicted_original(const at::Tensor& prediction, double timestep, const at::Tensor& sample) const;

 private:
  void check_timesteps(const std::vector<int64_t>& timesteps) const;

  SchedulerConfig config_;
  at::Tensor alphas_cumprod_;  // [num_train_timesteps]
  at::Tensor final_alpha_;     // 0-dimensional
};

}  // namespace sparsereel::models
