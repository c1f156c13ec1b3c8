// What settings cost in quality, fitted to what was measured of a few: the errors of reused steps, of blocks left out
// and of 8-bit weights add up. No torch.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "app/lab/tune/candidate.h"

namespace sparsereel::app::tuning {

/// What the model sees of a candidate.
struct Traits {
  bool quantized = true;  // its blocks
  double topk = 1;        // share of blocks
  bool bounded = false;   // chosen by one bound on their errors for all steps and layers
  double dense = 0;       // share of the steps with every block
  double threshold = 0;   // of the cache; 0: none
  double first = 0;       // share of the steps computed whatever the cache says
  bool fp8 = false;       // weights
};
/// share: of the blocks, where it is known better than usual_share() does.
Traits traits_of(const Candidate& candidate, int64_t steps, std::optional<double> share = {});
/// The share of the blocks that a candidate computes in steps that leave some out: its topk or, by a bound on their
/// errors, about what the tiny model computes at 256 x 256, beyond 1 where it is so small that all are computed.
double usual_share(const Candidate& candidate);

/// A video's nearness to full attention's.
struct Decibels {
  Traits traits;
  size_t prompt = 0;
  double value = 0;
};

struct Guess {
  double mean = 0, deviation = 0;
};

/// Mean squared error of a video, of the frames' range squared, is the sum of
///   q + b g (topk^-s - 1) exp(-d dense)        8-bit arithmetic, and blocks left out; g: 1, or of a bound on errors
///   c (threshold / 0.1)^t exp(-f first)        steps reused
///   w                                          weights in fp8
/// and each prompt is some decibels easier or harder than that. What the parameters are before anything was measured
/// are those of the tiny model, tables of assets/charts.
class NoiseModel {
 public:
  /// `prompts`: how many there are.
  explicit NoiseModel(size_t prompts);

  /// The likeliest parameters (Levenberg-Marquardt on the logarithm of the posterior).
  void fit(const std::vector<Decibels>& measured);
  /// What is expected of the mean over all prompts, and how sure that is.
  Guess guess(const Traits& traits) const;
  /// How much easier than their mean that prompt is, dB.
  double ease(size_t prompt) const { return parameters_[parameters_.size() - prompts_ + prompt] - mean_ease(); }

 private:
  double mean_ease() const;
  double decibels(const std::vector<double>& parameters, const Traits& traits) const;
  /// Of the decibels by each parameter; without a prompt those of the mean over all.
  std::vector<double> slopes(const Traits& traits, std::optional<size_t> prompt = {}) const;
  double badness(const std::vector<double>& parameters, const std::vector<Decibels>& measured) const;

  size_t prompts_;
  std::vector<double> prior_, spread_;  // of each parameter: mean and standard deviation
  std::vector<double> parameters_;      // logarithms of factors, powers; then the ease of each prompt
  std::vector<double> covariance_;      // by rows
};

/// What a candidate's videos have in common beyond the model, and what each has of its own: deviations, dB.
constexpr double kOfCandidates = 1, kOfVideos = 1;

}  // namespace sparsereel::app::tuning
