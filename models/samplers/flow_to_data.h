// Euler's method along the straight lines of flow matching (arXiv:2210.02747), for models that predict the slope
// towards the clean sample, clean - noise, and whose timesteps are 1 - sigma.
#pragma once

#include "models/samplers/flow_schedule.h"
#include "models/samplers/sampler.h"

namespace sparsereel::models {

class FlowToDataSampler : public Sampler {
 public:
  explicit FlowToDataSampler(FlowSchedule schedule);
  /// Blends the sample with the clean sample that the prediction implies, in fp32. Draws nothing from the generator.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;
  at::Tensor predicted_original(const at::Tensor& prediction, int64_t index, const at::Tensor& sample) const override;

 private:
  at::Tensor sigmas_;  // [steps + 1]
};

}  // namespace sparsereel::models
