// The noise schedule that DDIM and DPM-Solver share: cumulative alphas, timesteps, and the clean sample that a
// prediction means.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <vector>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// Alphas are kept and handed out as tensors on the CPU in the dtype the reference computes them in (float64 for
/// scaled_linear, float32 otherwise), because scalars of both widths mix in the samplers' formulas and their rounding
/// shows in the result.
class NoiseSchedule {
 public:
  /// `config` as its parser lets it through, for a run of 1 to num_train_timesteps steps. Throws Error where their
  /// timesteps leave the schedule.
  NoiseSchedule(const SchedulerConfig& config, int64_t num_inference_steps);

  /// Of the run, noisiest first, whole numbers.
  const std::vector<double>& timesteps() const { return timesteps_; }
  /// Timesteps from one step to the next, as the reference has them: where they are not equally spaced, too.
  double stride() const { return static_cast<double>(config_.num_train_timesteps / std::ssize(timesteps_)); }
  /// Cumulative product of alphas, 0-dimensional; for a negative timestep (the clean end) 1, or that of timestep 0
  /// where set_alpha_to_one is off.
  at::Tensor alpha_prod(double timestep) const;
  /// The clean sample x0 that `prediction` (epsilon, sample or v_prediction) means for `sample` at `timestep`.
  at::Tensor predicted_original(const at::Tensor& prediction, double timestep, const at::Tensor& sample) const;

 private:
  std::vector<int64_t> spaced(int64_t num_inference_steps) const;
  void check_timesteps(const std::vector<int64_t>& timesteps) const;

  SchedulerConfig config_;
  std::vector<double> timesteps_;
  at::Tensor alphas_cumprod_;  // [num_train_timesteps]
  at::Tensor final_alpha_;     // 0-dimensional
};

}  // namespace sparsereel::models
