// The reference computes the clean sample from the timestep that the model got, not from sigma. This code does the
// same, because 1 - (1 - sigma) is not always sigma in fp32.
#include "models/samplers/flow_to_data.h"

#include <ATen/ATen.h>

#include <utility>

namespace sparsereel::models {

FlowToDataSampler::FlowToDataSampler(FlowSchedule schedule)
    : Sampler(std::move(schedule.timesteps)), sigmas_(std::move(schedule.sigmas)) {}

at::Tensor FlowToDataSampler::predicted_original(const at::Tensor& prediction, int64_t index,
                                                 const at::Tensor& sample) const {
  const float sigma = 1 - static_cast<float>(timesteps_.at(static_cast<size_t>(index)));
  return sample.to(at::kFloat) + sigma * prediction.to(at::kFloat);
}

at::Tensor FlowToDataSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                                   at::Generator) {
  const at::Tensor clean = predicted_original(prediction, index, sample);
  const float ratio = sigmas_[index + 1].item<float>() / sigmas_[index].item<float>();
  return ratio * sample.to(at::kFloat) + (1 - ratio) * clean;
}

}  // namespace sparsereel::models
