// Ancestral sampling with Euler's steps (Karras et al., arXiv 2206.00364, of DDPMs by their noise over signal).
#pragma once

#include <string>
#include <vector>

#include "models/samplers/sampler.h"
#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

/// Of a run's steps: timesteps that need not be whole, and sigma, how much noise there is to one of signal.
struct NoiseLevels {
  std::vector<double> timesteps;  // rounded to fp32, as the reference has them
  at::Tensor sigmas;              // fp32 CPU [steps + 1], the last of which is 0
  at::Tensor start;               // fp32, 0-dimensional: the deviation of what a run starts from
};

/// Reads of the config: num_train_timesteps, beta_start, beta_end, beta_schedule (linear or scaled_linear),
/// timestep_spacing, steps_offset.
NoiseLevels noise_levels(const SchedulerConfig& config, int64_t num_inference_steps);

class EulerAncestralSampler final : public Sampler {
 public:
  /// prediction: "epsilon" or "v_prediction".
  EulerAncestralSampler(NoiseLevels levels, const std::string& prediction);

  at::Tensor start(const at::Tensor& noise) const override;
  at::Tensor model_input(const at::Tensor& sample, int64_t index) const override;
  /// Draws noise in the sample's dtype at each step, the last one too. fp32.
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
