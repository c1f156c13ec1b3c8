// Makes DPM-Solver++ steps, whose time is half the logarithm of the signal-to-noise ratio. The first step and a step
// that ends at the clean sample are of first order, all others of second order.
#include "models/samplers/dpm_solver.h"

#include <ATen/ATen.h>

#include <utility>

#include "hilbert/error.h"
#include "models/samplers/rounding.h"

namespace sparsereel::models {
namespace {

constexpr const char* kHistory = "old_pred_original_sample";

/// Returns half the logarithm of the signal-to-noise ratio. It is minus infinity where there is no signal (zero
/// terminal SNR), and plus infinity at the clean end.
at::Tensor half_log_snr(const at::Tensor& alpha_prod) {
  return rounded_log(rounded_sqrt(alpha_prod / (1 - alpha_prod)));
}

}  // namespace

DpmSolverSampler::DpmSolverSampler(NoiseSchedule schedule)
    : Sampler(schedule.timesteps()), schedule_(std::move(schedule)) {}

int64_t DpmSolverSampler::draws(int64_t index) const {
  // The reference draws noise twice in a second-order step and discards the first draw. Doing the same gives the same
  // noise for a seed.
  return index > 0 && timesteps_.at(index) >= schedule_.stride() ? 2 : 1;
}

at::Tensor DpmSolverSampler::predicted_original(const at::Tensor& prediction, int64_t index,
                                                const at::Tensor& sample) const {
  return schedule_.predicted_original(prediction, timesteps_.at(index), sample);
}

at::Tensor DpmSolverSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                                  at::Generator generator) {
  const double timestep = timesteps_.at(index), previous = timestep - schedule_.stride();
  if (index > 0 && !old_pred_original_sample_.defined()) {
    throw run_failure("step " + std::to_string(index) + " of the DPM sampler lacks the history of the step before",
                      "start at step 0, or resume from a checkpoint that holds " + std::string(kHistory));
  }
  const at::Tensor alpha_t = schedule_.alpha_prod(timestep), alpha_prev = schedule_.alpha_prod(previous);
  at::Tensor original = predicted_original(prediction, index, sample);

  const at::Tensor log_snr = half_log_snr(alpha_t);
  const at::Tensor h = half_log_snr(alpha_prev) - log_snr;
  const at::Tensor sample_weight = rounded_sqrt((1 - alpha_prev) / (1 - alpha_t)) * rounded_exp(-h);
  const at::Tensor original_weight = rounded_expm1(-2 * h) * rounded_sqrt(alpha_prev);  // this weight is negative
  const at::Tensor noise_weight = rounded_sqrt(1 - alpha_prev) * rounded_sqrt(1 - rounded_exp(-2 * h));

  const at::Tensor noise = noise_of(index, sample, generator);
  at::Tensor target = original;
  if (index > 0 && previous >= 0) {
    const at::Tensor h_last = log_snr - half_log_snr(schedule_.alpha_prod(timesteps_[index - 1]));
    const at::Tensor half_inverse_ratio = (2 * (h_last / h)).reciprocal();
    target = (1 + half_inverse_ratio) * original - half_inverse_ratio * old_pred_original_sample_;
  }
  old_pred_original_sample_ = original;
  return sample_weight * sample - original_weight * target + noise_weight * noise;
}

std::map<std::string, at::Tensor> DpmSolverSampler::state() const {
  if (!old_pred_original_sample_.defined()) return {};
  return {{kHistory, old_pred_original_sample_}};
}

void DpmSolverSampler::restore(const std::map<std::string, at::Tensor>& state) {
  for (const auto& [name, tensor] : state) {
    if (name != kHistory) {
      throw bad_input("sampler state \"" + name + "\" does not belong to DPM-Solver",
                      "resume with the scheduler that wrote the checkpoint");
    }
  }
  Sampler::restore({});
  const auto found = state.find(kHistory);
  old_pred_original_sample_ = found == state.end() ? at::Tensor() : found->second;
}

}  // namespace sparsereel::models
