// Computes evenly spaced, shifted noise levels. Rounds as the reference does, because timesteps must be the same to the
// last bit.
#include "models/samplers/flow_schedule.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/samplers/rounding.h"

namespace sparsereel::models {
namespace {

/// Applies the shift to sigma. `Real` is the type in which the reference computes the shift.
template <typename Real>
Real shifted(Real sigma, double shift) {
  return static_cast<Real>(shift) * sigma / (1 + static_cast<Real>(shift - 1) * sigma);
}

/// Returns the levels in fp32, followed by the clean end, 0.
at::Tensor with_clean_end(std::vector<double> sigmas) {
  sigmas.push_back(0);
  return at::tensor(sigmas, at::kFloat);
}

/// Converts levels and timesteps, in fp32, for a model in which level 0 is noise and level 1 is clean.
void invert(FlowSchedule& schedule, double train_steps) {
  schedule.sigmas = 1 - schedule.sigmas;
  const at::Tensor timesteps = (schedule.sigmas * train_steps).to(at::kDouble);
  for (size_t step = 0; step < schedule.timesteps.size(); ++step)
    schedule.timesteps[step] = timesteps[static_cast<int64_t>(step)].item<double>();
}

bool fall(const at::Tensor& sigmas) {
  return (sigmas.diff() < 0).all().item<bool>();
}

/// Returns the error for noise levels that are too close together. If the given sigmas are too close even without the
/// shift, the error names sigmas, else flow_shift.
Error no_room(const SchedulerConfig& config, int64_t num_inference_steps) {
  if (!config.sigmas.empty() && !fall(with_clean_end(config.sigmas)))
    return bad_option("sigmas", "are too close to each other or to 0", "give levels that differ by 0.001 or more");
  return bad_option("flow_shift",
                    exact_text(config.flow_shift) + " leaves no room between the noise levels of " +
                        std::to_string(num_inference_steps) + " steps",
                    "use another flow_shift (usual values are 1 to 12) or fewer steps");
}

}  // namespace

FlowSchedule euler_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps) {
  const auto train_steps = static_cast<double>(config.num_train_timesteps);
  // The reference applies the shift twice: it spaces the run's levels evenly between the ends of a table that is
  // already shifted, and then shifts them again.
  std::vector<double> sigmas;
  FlowSchedule schedule;
  const auto add = [&](double sigma) {
    sigmas.push_back(sigma);
    schedule.timesteps.push_back(static_cast<float>(sigma) * static_cast<float>(train_steps));
  };
  const double first = shifted(1.0F, config.flow_shift);
  const double last = shifted(1.0F / static_cast<float>(train_steps), config.flow_shift);
  for (const double sigma : config.sigmas) add(shifted(static_cast<float>(sigma), config.flow_shift));
  if (sigmas.empty())
    for (const double timestep : linspace(first * train_steps, last * train_steps, num_inference_steps))
      add(shifted(timestep / train_steps, config.flow_shift));
  schedule.sigmas = with_clean_end(std::move(sigmas));
  if (config.invert_sigmas) invert(schedule, train_steps);
  if (!at::isfinite(schedule.sigmas).all().item<bool>()) throw no_room(config, num_inference_steps);
  return schedule;
}

namespace {

/// Makes a schedule from levels that are already shifted. Its timesteps are whole numbers.
FlowSchedule schedule_of(std::vector<double> sigmas, const SchedulerConfig& config, int64_t num_inference_steps) {
  FlowSchedule schedule;
  for (const double sigma : sigmas)
    schedule.timesteps.push_back(std::trunc(sigma * static_cast<double>(config.num_train_timesteps)));
  schedule.sigmas = with_clean_end(std::move(sigmas));
  if (!fall(schedule.sigmas)) throw no_room(config, num_inference_steps);
  return schedule;
}

}  // namespace

FlowSchedule dpm_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps) {
  std::vector<double> sigmas = config.sigmas;
  if (sigmas.empty()) {
    sigmas = linspace(1, 1 / static_cast<double>(config.num_train_timesteps), num_inference_steps + 1);
    for (double& sigma : sigmas) sigma = 1 - sigma;
    std::ranges::reverse(sigmas);
    sigmas.pop_back();
  }
  for (double& sigma : sigmas) sigma = shifted(sigma, config.flow_shift);
  return schedule_of(std::move(sigmas), config, num_inference_steps);
}

FlowSchedule data_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps) {
  at::Tensor base = at::linspace(1, 0, num_inference_steps + 1, at::kFloat);
  if (!config.sigmas.empty()) base = with_clean_end(config.sigmas);
  FlowSchedule schedule;
  schedule.sigmas = config.flow_shift * base / (1 + (config.flow_shift - 1) * base);
  if (!fall(schedule.sigmas)) throw no_room(config, num_inference_steps);
  const at::Tensor timesteps = (1 - schedule.sigmas).to(at::kDouble);
  for (int64_t step = 0; step < num_inference_steps; ++step)
    schedule.timesteps.push_back(timesteps[step].item<double>());
  return schedule;
}

FlowSchedule unipc_flow_schedule(const SchedulerConfig& config, int64_t num_inference_steps) {
  constexpr double kLeastSignal = 1e-6;  // the least amount of signal, because the log-SNR of pure noise is not finite
  const auto train_steps = static_cast<double>(config.num_train_timesteps);
  std::vector<double> sigmas = config.sigmas;
  if (sigmas.empty()) {
    sigmas = linspace(1, 1 / train_steps, num_inference_steps + 1);
    sigmas.pop_back();
  }
  for (double& sigma : sigmas) sigma = shifted(sigma, config.flow_shift);
  if (std::abs(sigmas.front() - 1) < kLeastSignal) sigmas.front() -= kLeastSignal;
  return schedule_of(std::move(sigmas), config, num_inference_steps);
}

}  // namespace sparsereel::models
