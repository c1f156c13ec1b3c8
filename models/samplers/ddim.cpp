// A DDIM step is a weighted sum of the sample and the predicted clean sample.
#include "models/samplers/ddim.h"

#include <ATen/ATen.h>

#include <utility>

#include "models/samplers/rounding.h"

namespace sparsereel::models {

DdimSampler::DdimSampler(NoiseSchedule schedule) : Sampler(schedule.timesteps()), schedule_(std::move(schedule)) {}

at::Tensor DdimSampler::predicted_original(const at::Tensor& prediction, int64_t index,
                                           const at::Tensor& sample) const {
  return schedule_.predicted_original(prediction, timesteps_.at(index), sample);
}

at::Tensor DdimSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample, at::Generator) {
  const double timestep = timesteps_.at(index);
  const at::Tensor alpha_t = schedule_.alpha_prod(timestep);
  // The reference takes the timestep that is a fixed stride below this one, even if rounding has made the run's
  // timesteps unequally spaced. This code does the same.
  const at::Tensor alpha_prev = schedule_.alpha_prod(timestep - schedule_.stride());
  const at::Tensor original = predicted_original(prediction, index, sample);
  const at::Tensor sample_weight = rounded_sqrt((1 - alpha_prev) / (1 - alpha_t));
  const at::Tensor original_weight = rounded_sqrt(alpha_prev) - rounded_sqrt(alpha_t) * sample_weight;
  return sample_weight * sample + original_weight * original;
}

}  // namespace sparsereel::models
