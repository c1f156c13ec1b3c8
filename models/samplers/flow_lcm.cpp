// A step computes the clean latents, and adds new noise to reach the next noise level.
#include "models/samplers/flow_lcm.h"

#include <ATen/ATen.h>

#include <utility>

namespace sparsereel::models {

FlowLcmSampler::FlowLcmSampler(FlowSchedule schedule)
    : Sampler(std::move(schedule.timesteps)), sigmas_(std::move(schedule.sigmas)) {}

at::Tensor FlowLcmSampler::predicted_original(const at::Tensor& prediction, int64_t index,
                                              const at::Tensor& sample) const {
  return sample.to(at::kFloat) - sigmas_[index] * prediction;
}

at::Tensor FlowLcmSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                                at::Generator generator) {
  const at::Tensor clean = predicted_original(prediction, index, sample);
  const at::Tensor noise = noise_of(index, clean, generator), next = sigmas_[index + 1];
  return ((1 - next) * clean + next * noise).to(prediction.scalar_type());
}

}  // namespace sparsereel::models
