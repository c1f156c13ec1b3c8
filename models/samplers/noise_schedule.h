// The noise schedule of DDIM and DPM-Solver: cumulative products of alphas, timesteps, and the clean sample that a
// prediction implies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <vector>

#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// Alphas are CPU tensors in the dtype in which the reference computes them: fp64 for scaled_linear, fp32 otherwise.
/// The samplers' formulas mix both dtypes, and a different rounding would be visible in the result.
class NoiseSchedule {
 public:
  /// Computes the schedule of a run with 1 to num_train_timesteps steps. `config` must come from its parser. Throws
  /// Error if a timestep is outside the table of betas, or if a model that predicts epsilon would start without any
  /// signal.
  NoiseSchedule(const SchedulerConfig& config, int64_t num_inference_steps);

  /// Returns the run's timesteps, noisiest first; whole numbers.
  const std::vector<double>& timesteps() const { return timesteps_; }
  /// Returns the number of training timesteps from one step to the next. As in the reference, this is one number even
  /// if the steps are not equally spaced.
  double stride() const { return static_cast<double>(config_.num_train_timesteps / std::ssize(timesteps_)); }
  /// Returns the cumulative product of alphas, 0-dimensional. For a negative timestep (the clean end), this is 1, or
  /// the product at timestep 0 if set_alpha_to_one is off.
  at::Tensor alpha_prod(double timestep) const;
  /// Returns the clean sample x0 that `prediction` (epsilon, sample or v_prediction) implies for `sample` at
  /// `timestep`.
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
