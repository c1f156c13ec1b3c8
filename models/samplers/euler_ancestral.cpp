// Interpolates a run's noise levels in the table of training timesteps. Each step goes down below the next noise level,
// and returns to that level by adding noise.
#include "models/samplers/euler_ancestral.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/samplers/rounding.h"

namespace sparsereel::models {
namespace {

at::Tensor betas_of(const SchedulerConfig& config) {
  const int64_t count = config.num_train_timesteps;
  if (config.beta_schedule == "linear") return at::linspace(config.beta_start, config.beta_end, count, at::kFloat);
  return at::linspace(std::sqrt(config.beta_start), std::sqrt(config.beta_end), count, at::kFloat).square();
}

/// Returns sigma for each training timestep, fp32 [num_train_timesteps].
at::Tensor training_sigmas(const SchedulerConfig& config) {
  const at::Tensor signal = (1.0 - betas_of(config)).cumprod(0);
  return rounded_sqrt((1 - signal) / signal);
}

/// Returns the timesteps, noisiest first.
std::vector<double> timesteps_of(const SchedulerConfig& config, int64_t count) {
  const int64_t train_steps = config.num_train_timesteps, stride = train_steps / count;
  std::vector<double> timesteps = linspace(0, static_cast<double>(train_steps - 1), count);
  if (config.timestep_spacing != "linspace")
    for (int64_t i = 0; i < count; ++i)
      timesteps[static_cast<size_t>(i)] = static_cast<double>(i * stride + config.steps_offset);
  for (double& timestep : timesteps) timestep = static_cast<float>(timestep);
  return {timesteps.rbegin(), timesteps.rend()};
}

/// Interpolates linearly between the table's entries at the fractional index `place`. Computes in fp64 and by the
/// slope, to round as numpy does.
double interpolated(const at::Tensor& table, double place) {
  const auto* entries = table.const_data_ptr<float>();
  const int64_t last = table.numel() - 1, below = std::min(static_cast<int64_t>(place), last);
  if (below == last) return entries[last];
  const double from = entries[below];
  return (static_cast<double>(entries[below + 1]) - from) * (place - static_cast<double>(below)) + from;
}

}  // namespace

NoiseLevels noise_levels(const SchedulerConfig& config, int64_t num_inference_steps) {
  NoiseLevels levels = {.timesteps = timesteps_of(config, num_inference_steps), .sigmas = {}, .start = {}};
  const at::Tensor table = training_sigmas(config);
  std::vector<double> sigmas;
  for (const double timestep : levels.timesteps) sigmas.push_back(interpolated(table, timestep));
  sigmas.push_back(0);
  levels.sigmas = at::tensor(sigmas, at::kDouble).to(at::kFloat);
  const at::Tensor largest = levels.sigmas.max();
  levels.start = config.timestep_spacing == "linspace" ? largest : rounded_sqrt(largest.square() + 1);
  return levels;
}

EulerAncestralSampler::EulerAncestralSampler(NoiseLevels levels, const std::string& prediction)
    : Sampler(levels.timesteps), levels_(std::move(levels)), predicts_noise_(prediction == "epsilon") {}

at::Tensor EulerAncestralSampler::start(const at::Tensor& noise) const {
  return noise * levels_.start;
}

at::Tensor EulerAncestralSampler::model_input(const at::Tensor& sample, int64_t index) const {
  return sample / rounded_sqrt(levels_.sigmas[index].square() + 1);
}

at::Tensor EulerAncestralSampler::original_at(const at::Tensor& sigma, const at::Tensor& prediction,
                                              const at::Tensor& sample) const {
  if (predicts_noise_) return sample - sigma * prediction;
  const at::Tensor power = sigma.square() + 1;
  return prediction * (-sigma / rounded_sqrt(power)) + sample / power;
}

at::Tensor EulerAncestralSampler::predicted_original(const at::Tensor& prediction, int64_t index,
                                                     const at::Tensor& sample) const {
  return original_at(levels_.sigmas[index], prediction, sample.to(at::kFloat));
}

at::Tensor EulerAncestralSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                                       at::Generator generator) {
  const at::Tensor from = levels_.sigmas[index], to = levels_.sigmas[index + 1];
  const at::Tensor up = rounded_sqrt(to.square() * (from.square() - to.square()) / from.square()),
                   down = rounded_sqrt(to.square() - up.square());
  const at::Tensor current = sample.to(at::kFloat);
  const at::Tensor slope = (current - original_at(from, prediction, current)) / from;
  const at::Tensor noise = noise_of(index, sample, generator);
  return current + slope * (down - from) + noise * up;
}

}  // namespace sparsereel::models
