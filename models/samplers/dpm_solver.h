// The stochastic two-step DPM-Solver++ (arXiv:2211.01095, SDE variant).
#pragma once

#include "models/samplers/noise_schedule.h"
#include "models/samplers/sampler.h"

namespace sparsereel::models {

class DpmSolverSampler : public Sampler {
 public:
  explicit DpmSolverSampler(NoiseSchedule schedule);
  /// Steps must be taken in order, from 0 or from the state given to restore(), because each step uses the clean sample
  /// that the previous step predicted.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;
  at::Tensor predicted_original(const at::Tensor& prediction, int64_t index, const at::Tensor& sample) const override;
  std::map<std::string, at::Tensor> state() const override;
  void restore(const std::map<std::string, at::Tensor>& state) override;

 protected:
  /// Returns 1 for the first step and for a step that ends at the clean sample, else 2.
  int64_t draws(int64_t index) const override;

 private:
  NoiseSchedule schedule_;
  at::Tensor old_pred_original_sample_;  // undefined before the first step
};

}  // namespace sparsereel::models
