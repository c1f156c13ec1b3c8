// Euler's method along the straight lines of flow matching (arXiv:2210.02747), like FlowMatchEulerDiscreteScheduler.
#pragma once

#include "models/samplers/flow_schedule.h"
#include "models/samplers/sampler.h"

namespace sparsereel::models {

class FlowEulerSampler : public Sampler {
 public:
  explicit FlowEulerSampler(FlowSchedule schedule);
  /// Steps along the predicted slope. Draws nothing from the generator. The result has the prediction's dtype, as in
  /// the reference.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;
  at::Tensor predicted_original(const at::Tensor& prediction, int64_t index, const at::Tensor& sample) const override;

 private:
  at::Tensor sigmas_;  // [steps + 1]
};

}  // namespace sparsereel::models
