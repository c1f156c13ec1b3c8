// An Euler step moves the sample along the predicted slope by the change of sigma.
#include "models/samplers/flow_euler.h"

#include <ATen/ATen.h>

#include <utility>

namespace sparsereel::models {

FlowEulerSampler::FlowEulerSampler(FlowSchedule schedule)
    : Sampler(std::move(schedule.timesteps)), sigmas_(std::move(schedule.sigmas)) {}

at::Tensor FlowEulerSampler::predicted_original(const at::Tensor& prediction, int64_t index,
                                                const at::Tensor& sample) const {
  // The last sigma is 0, or 1 in an inverted schedule.
  return (sample.to(at::kFloat) + (sigmas_[-1] - sigmas_[index]) * prediction).to(prediction.scalar_type());
}

at::Tensor FlowEulerSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                                  at::Generator) {
  const at::Tensor next = sample.to(at::kFloat) + (sigmas_[index + 1] - sigmas_[index]) * prediction;
  return next.to(prediction.scalar_type());
}

}  // namespace sparsereel::models
