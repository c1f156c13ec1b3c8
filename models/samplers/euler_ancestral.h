// Ancestral sampling with Euler steps (Karras et al., arXiv 2206.00364) for DDPMs. Noise levels are ratios of noise to
// signal.
#pragma once

#include <string>
#include <vector>

#include "models/samplers/sampler.h"
#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// The timesteps of a run, which need not be whole numbers, and its sigmas. A sigma is the amount of noise per unit of
/// signal.
struct NoiseLevels {
  std::vector<double> timesteps;  // rounded to fp32, as in the reference
  at::Tensor sigmas;              // fp32 CPU [steps + 1]; the last one is 0
  at::Tensor start;               // fp32, 0-dimensional: standard deviation of the latents with which the run starts
};

/// Computes a run's noise levels. Reads these fields of the config: num_train_timesteps, beta_start, beta_end,
/// beta_schedule (linear or scaled_linear), timestep_spacing and steps_offset.
NoiseLevels noise_levels(const SchedulerConfig& config, int64_t num_inference_steps);

class EulerAncestralSampler final : public Sampler {
 public:
  /// Makes a sampler for these noise levels. `prediction` says what the model predicts: "epsilon" or "v_prediction".
  EulerAncestralSampler(NoiseLevels levels, const std::string& prediction);

  at::Tensor start(const at::Tensor& noise) const override;
  at::Tensor model_input(const at::Tensor& sample, int64_t index) const override;
  /// Draws noise in the sample's dtype at each step, including the last one. Returns fp32.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;
  at::Tensor predicted_original(const at::Tensor& prediction, int64_t index, const at::Tensor& sample) const override;

 protected:
  int64_t draws(int64_t /*index*/) const override { return 1; }

 private:
  at::Tensor original_at(const at::Tensor& sigma, const at::Tensor& prediction, const at::Tensor& sample) const;

  NoiseLevels levels_;
  bool predicts_noise_;
};

}  // namespace sparsereel::models
