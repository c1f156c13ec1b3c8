// DDIM (arXiv:2010.02502) without added noise.
#pragma once

#include "models/samplers/noise_schedule.h"
#include "models/samplers/sampler.h"

namespace sparsereel::models {

class DdimSampler : public Sampler {
 public:
  explicit DdimSampler(NoiseSchedule schedule);
  /// Makes one DDIM step. Draws nothing from the generator.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;
  at::Tensor predicted_original(const at::Tensor& prediction, int64_t index, const at::Tensor& sample) const override;

 private:
  NoiseSchedule schedule_;
};

}  // namespace sparsereel::models
