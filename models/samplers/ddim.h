// DDIM (arXiv:2010.02502) without added noise.
#pragma once

#include "models/samplers/noise_schedule.h"
#include "models/samplers/sampler.h"

namespace sparsereel::models {

class DdimSampler : public Sampler {
 public:
  DdimSampler(const SchedulerConfig& config, int64_t num_inference_steps);
  /// Draws nothing from the generator.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;

 private:
  NoiseSchedule schedule_;
  double stride_;  // timesteps from one step to the next
};

}  // namespace sparsereel::models
