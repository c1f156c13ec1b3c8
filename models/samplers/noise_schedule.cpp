// Computes cumulative alphas from betas, with SNR shift and zero terminal SNR, and spaces the timesteps.
#include "models/samplers/noise_schedule.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hilbert/error.h"
#include "models/samplers/rounding.h"

namespace sparsereel::models {
namespace {

constexpr const char* kConfigFile = "scheduler_config.json";

Error bad_field(const std::string& field, const std::string& problem, std::string remedy) {
  return bad_input(std::string(kConfigFile) + ": " + field + " " + problem, std::move(remedy));
}

/// Returns the betas of the cosine schedule of arXiv:2102.09672. Betas above 0.999 are set to 0.999.
at::Tensor cosine_betas(int64_t count) {
  const auto alpha_bar = [](double t) {
    const double cosine = std::cos((t + 0.008) / 1.008 * std::numbers::pi / 2);
    return cosine * cosine;
  };
  std::vector<double> betas;
  for (int64_t i = 0; i < count; ++i) {
    const double from = static_cast<double>(i) / static_cast<double>(count);
    const double to = static_cast<double>(i + 1) / static_cast<double>(count);
    betas.push_back(std::min(1 - alpha_bar(to) / alpha_bar(from), 0.999));
  }
  return at::tensor(betas, at::kFloat);
}

at::Tensor make_betas(const SchedulerConfig& config) {
  const int64_t count = config.num_train_timesteps;
  if (!config.trained_betas.empty()) return at::tensor(config.trained_betas, at::kFloat);
  if (config.beta_schedule == "linear") return at::linspace(config.beta_start, config.beta_end, count, at::kFloat);
  if (config.beta_schedule == "scaled_linear") {
    return at::linspace(std::sqrt(config.beta_start), std::sqrt(config.beta_end), count, at::kDouble).square();
  }
  return cosine_betas(count);  // beta_schedule is squaredcos_cap_v2
}

/// Shifts and scales the square roots of the cumulative alphas so that the last timestep is pure noise
/// (arXiv:2305.08891, algorithm 1).
at::Tensor rescale_zero_terminal_snr(const at::Tensor& alphas_cumprod) {
  const at::Tensor root = rounded_sqrt(alphas_cumprod);
  const at::Tensor first = root[0], last = root[-1];
  return ((root - last) * (first / (first - last))).square();
}

std::vector<int64_t> linspace_timesteps(int64_t train_steps, int64_t count) {
  std::vector<int64_t> timesteps(count, 0);
  if (count == 1) return timesteps;
  const double step = static_cast<double>(train_steps - 1) / static_cast<double>(count - 1);
  for (int64_t i = 0; i < count; ++i) {
    timesteps[count - 1 - i] = static_cast<int64_t>(std::nearbyint(static_cast<double>(i) * step));
  }
  timesteps[0] = train_steps - 1;
  return timesteps;
}

std::vector<int64_t> leading_timesteps(int64_t train_steps, int64_t count, int64_t offset) {
  std::vector<int64_t> timesteps;
  for (int64_t i = count - 1; i >= 0; --i) timesteps.push_back(i * (train_steps / count) + offset);
  return timesteps;
}

/// Returns numpy's arange(train_steps, 0, -train_steps / count), rounded, minus one. numpy's step is the difference of
/// its first two values; its rounding error affects the reference's timesteps, so it is repeated here. For some counts
/// (61 and 103 of 1000) arange returns one value too many, which becomes timestep -1. The reference then reads the
/// last, noisiest entry of its table. Here this timestep is left out.
std::vector<int64_t> trailing_timesteps(int64_t train_steps, int64_t count) {
  const auto start = static_cast<double>(train_steps);
  const double difference = (start - start / static_cast<double>(count)) - start;
  std::vector<int64_t> timesteps;
  for (int64_t i = 0; i < count; ++i) {
    timesteps.push_back(static_cast<int64_t>(std::nearbyint(start + static_cast<double>(i) * difference)) - 1);
  }
  return timesteps;
}

}  // namespace

NoiseSchedule::NoiseSchedule(const SchedulerConfig& config, int64_t num_inference_steps) : config_(config) {
  alphas_cumprod_ = (1.0 - make_betas(config)).cumprod(0);
  // Stable Diffusion 3's shift of the signal-to-noise ratio, arXiv:2403.03206.
  const double shift = config.snr_shift_scale;
  alphas_cumprod_ = alphas_cumprod_ / (shift + (1 - shift) * alphas_cumprod_);
  if (config.rescale_betas_zero_snr) alphas_cumprod_ = rescale_zero_terminal_snr(alphas_cumprod_);
  final_alpha_ = config.set_alpha_to_one ? at::ones({}, at::kFloat) : alphas_cumprod_[0];
  const std::vector<int64_t> timesteps = spaced(num_inference_steps);
  check_timesteps(timesteps);
  timesteps_.assign(timesteps.begin(), timesteps.end());
}

std::vector<int64_t> NoiseSchedule::spaced(int64_t num_inference_steps) const {
  const int64_t train_steps = config_.num_train_timesteps;
  if (config_.timestep_spacing == "linspace") return linspace_timesteps(train_steps, num_inference_steps);
  if (config_.timestep_spacing == "leading")
    return leading_timesteps(train_steps, num_inference_steps, config_.steps_offset);
  return trailing_timesteps(train_steps, num_inference_steps);
}

void NoiseSchedule::check_timesteps(const std::vector<int64_t>& timesteps) const {
  const int64_t table = alphas_cumprod_.size(0);
  for (const int64_t timestep : timesteps) {
    if (timestep >= 0 && timestep < table) continue;
    throw bad_field("timestep " + std::to_string(timestep),
                    "lies outside the table of " + std::to_string(table) + " betas",
                    "check num_train_timesteps, steps_offset and trained_betas, or take fewer steps");
  }
  if (config_.prediction_type == "epsilon" && alpha_prod(static_cast<double>(timesteps.front())).item<double>() == 0) {
    throw bad_field("prediction_type",
                    "epsilon needs some signal at the first timestep, where rescale_betas_zero_snr leaves none",
                    "use the scheduler_config.json that belongs to the checkpoint");
  }
}

at::Tensor NoiseSchedule::alpha_prod(double timestep) const {
  return timestep < 0 ? final_alpha_ : alphas_cumprod_[static_cast<int64_t>(timestep)];
}

at::Tensor NoiseSchedule::predicted_original(const at::Tensor& prediction, double timestep,
                                             const at::Tensor& sample) const {
  const at::Tensor alpha_prod_t = alpha_prod(timestep);
  const at::Tensor signal = rounded_sqrt(alpha_prod_t), noise = rounded_sqrt(1 - alpha_prod_t);
  if (config_.prediction_type == "epsilon") return (sample - noise * prediction) / signal;
  if (config_.prediction_type == "sample") return prediction;
  return signal * sample - noise * prediction;
}

}  // namespace sparsereel::models
