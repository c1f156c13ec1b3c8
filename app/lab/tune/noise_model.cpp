// Fits the parameters of the noise model, about a dozen, with libtorch's linear algebra.
#include "app/lab/tune/noise_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace sparsereel::app::tuning {
namespace {

using Vector = std::vector<double>;

at::Tensor tensor_of(const Vector& values) {
  return at::tensor(values, at::kDouble);
}

Vector vector_of(const at::Tensor& values) {
  const at::Tensor copy = values.contiguous();
  return {copy.const_data_ptr<double>(), copy.const_data_ptr<double>() + copy.numel()};
}

enum Parameter : size_t { kQ, kB, kS, kD, kC, kT, kF, kW, kI, kG, kShared };

struct Prior {
  double mean, deviation;
};
const Prior kPrior[kShared] = {{std::log(1.5e-5), 1.5},
                               {std::log(2.7e-5), 1.5},
                               {1.1, 0.3},
                               {3.5, 1.5},
                               {std::log(1.6e-5), 1.5},
                               {3.5, 0.8},
                               {2.5, 1.5},
                               {std::log(2.3e-4), 1},
                               {std::log(2.3e-5), 1},
                               {std::log(0.6), 0.5}};
constexpr double kOfPrompts = 3;      // standard deviation, in dB, of the prior of each prompt's ease
constexpr double kLeastNoise = 1e-9;  // mean squared error of settings that hardly differ from full attention
constexpr double kUsualThreshold = 0.1;
constexpr double kLeastTopk = 0.01;  // a share of blocks; at 0, the noise would be infinite
constexpr int kIterations = 30;

/// Returns how many of the videos have the setting `traits`. variance_of() needs it: videos of one setting share that
/// setting's error, so each tells less than a video of another setting.
double count_alike(const std::vector<Decibels>& measured, const Traits& traits) {
  return static_cast<double>(std::ranges::count_if(measured, [&](const Decibels& each) {
    const Traits& other = each.traits;
    return other.quantized == traits.quantized && other.topk == traits.topk && other.bounded == traits.bounded &&
           other.dense == traits.dense && other.threshold == traits.threshold && other.first == traits.first &&
           other.fp8 == traits.fp8 && other.int8 == traits.int8;
  }));
}

double variance_of(const std::vector<Decibels>& measured, const Traits& traits) {
  return kOfVideos * kOfVideos + kOfCandidates * kOfCandidates * count_alike(measured, traits);
}

}  // namespace

double usual_share(const Candidate& candidate) {
  if (!candidate.block_error) return candidate.topk.value_or(0.3);
  return 0.4 * std::pow(*candidate.block_error / 0.008, -0.68);
}

Traits traits_of(const Candidate& candidate, int64_t steps, std::optional<double> share) {
  const auto share_of = [&](const models::FirstSteps& first) {
    return std::min(1.0, static_cast<double>(first.of(steps)) / static_cast<double>(steps));
  };
  Traits traits{.quantized = candidate.mode != attention::Mode::full,
                .fp8 = candidate.weights == "fp8",
                .int8 = candidate.weights == "int8"};
  if (candidate.sparse()) {
    traits.topk = std::clamp(share.value_or(usual_share(candidate)), kLeastTopk, 1.0);
    traits.bounded = candidate.block_error.has_value();
    traits.dense = share_of(candidate.dense);
  }
  if (candidate.cache.on()) traits.threshold = candidate.cache.threshold;
  if (candidate.cache.on()) traits.first = share_of(candidate.cache.first);
  return traits;
}

NoiseModel::NoiseModel(size_t prompts) : prompts_(prompts) {
  for (const Prior& each : kPrior) {
    prior_.push_back(each.mean);
    spread_.push_back(each.deviation);
  }
  prior_.resize(kShared + prompts, 0);
  spread_.resize(kShared + prompts, kOfPrompts);
  fit({});
}

double NoiseModel::decibels(const Vector& parameters, const Traits& traits) const {
  double noise = kLeastNoise;
  if (traits.quantized) {
    noise += std::exp(parameters[kQ]);
    const double left_out = std::max(0.0, std::pow(traits.topk, -parameters[kS]) - 1);
    const double gain = traits.bounded ? parameters[kG] : 0;
    noise += std::exp(parameters[kB] + gain - parameters[kD] * traits.dense) * left_out;
  }
  if (traits.threshold > 0)
    noise += std::exp(parameters[kC] + parameters[kT] * std::log(traits.threshold / kUsualThreshold) -
                      parameters[kF] * traits.first);
  if (traits.fp8) noise += std::exp(parameters[kW]);
  if (traits.int8) noise += std::exp(parameters[kI]);
  return -10 * std::log10(noise);
}

Vector NoiseModel::slopes(const Traits& traits, std::optional<size_t> prompt) const {
  constexpr double kStep = 1e-4;
  Vector slopes(parameters_.size(), prompt ? 0 : 1 / static_cast<double>(prompts_));
  if (prompt) slopes[kShared + *prompt] = 1;
  const double here = decibels(parameters_, traits);
  for (size_t i = 0; i < kShared; ++i) {
    Vector moved = parameters_;
    moved[i] += kStep;
    slopes[i] = (decibels(moved, traits) - here) / kStep;
  }
  return slopes;
}

double NoiseModel::badness(const Vector& parameters, const std::vector<Decibels>& measured,
                           const Vector& variances) const {
  double sum = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double off = (parameters[i] - prior_[i]) / spread_[i];
    sum += off * off;
  }
  for (size_t i = 0; i < measured.size(); ++i) {
    const Decibels& each = measured[i];
    const double off = each.value - decibels(parameters, each.traits) - parameters[kShared + each.prompt];
    sum += off * off / variances[i];
  }
  return sum;
}

void NoiseModel::fit(const std::vector<Decibels>& measured) {
  const at::Tensor prior = tensor_of(prior_), spread = tensor_of(spread_);
  parameters_ = prior_;
  Vector variances, precisions;
  for (const Decibels& each : measured) {
    variances.push_back(variance_of(measured, each.traits));
    precisions.push_back(1 / variances.back());
  }
  double damping = 1e-3, now = badness(parameters_, measured, variances);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    Vector all_slopes, off;
    for (const Decibels& each : measured) {
      const Vector slope = slopes(each.traits, each.prompt);
      all_slopes.insert(all_slopes.end(), slope.begin(), slope.end());
      off.push_back(each.value - decibels(parameters_, each.traits) - parameters_[kShared + each.prompt]);
    }
    const at::Tensor jacobian = tensor_of(all_slopes).view({std::ssize(measured), std::ssize(parameters_)});
    const at::Tensor weighed = jacobian * tensor_of(precisions).unsqueeze(1);
    const at::Tensor curvature = at::diag(spread.pow(-2)) + at::mm(jacobian.t(), weighed);
    const at::Tensor downhill = (prior - tensor_of(parameters_)) / spread.pow(2) + at::mv(weighed.t(), tensor_of(off));
    covariance_ = vector_of(at::linalg_inv(curvature));
    const at::Tensor damped = curvature + damping * at::diag(curvature.diagonal());
    const Vector moved = vector_of(tensor_of(parameters_) + at::mv(at::linalg_inv(damped), downhill));
    const double then = badness(moved, measured, variances);
    if (then > now || !std::isfinite(then)) {
      damping *= 10;
      continue;
    }
    const bool settled = now - then < 1e-6;
    parameters_ = moved;
    now = then;
    damping = std::max(1e-6, damping / 10);
    if (settled) break;
  }
}

Guess NoiseModel::guess(const Traits& traits) const {
  const Vector slope = slopes(traits);
  double variance = 0;
  for (size_t i = 0; i < slope.size(); ++i)
    for (size_t j = 0; j < slope.size(); ++j) variance += slope[i] * covariance_[i * slope.size() + j] * slope[j];
  return {.mean = decibels(parameters_, traits) + mean_ease(), .deviation = std::sqrt(std::max(0.0, variance))};
}

double NoiseModel::mean_ease() const {
  double sum = 0;
  for (size_t prompt = 0; prompt < prompts_; ++prompt) sum += parameters_[kShared + prompt];
  return sum / static_cast<double>(prompts_);
}

}  // namespace sparsereel::app::tuning
