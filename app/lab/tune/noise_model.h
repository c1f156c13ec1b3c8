// Predicts the loss of quality of settings from a few measured ones. It adds the errors of reused steps, dropped blocks
// and 8-bit weights. No torch.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "app/lab/tune/candidate.h"

namespace sparsereel::app::tuning {

/// The properties of a candidate that the model uses.
struct Traits {
  bool quantized = true;  // blocks in 8 bits
  double topk = 1;        // share of blocks
  bool bounded = false;   // blocks are chosen by one bound on their errors in all steps and layers
  double dense = 0;       // share of steps with every block
  double threshold = 0;   // threshold of the cache; 0 without a cache
  double first = 0;       // share of steps computed regardless of the cache
  bool fp8 = false;       // weights in fp8
  bool int8 = false;      // weights in int8
};
/// Returns the traits. If `share`, the share of blocks, is set, it replaces usual_share().
Traits traits_of(const Candidate& candidate, int64_t steps, std::optional<double> share = {});
/// Returns the share of blocks that a candidate computes in steps that drop some: its topk. For a bound on errors it is
/// about what the tiny model computes at 256 x 256. It exceeds 1 if the bound is so small that it keeps all blocks.
double usual_share(const Candidate& candidate);

/// The PSNR of a video, compared with the same video made with full attention; or a figure on that scale, in dB.
struct Decibels {
  Traits traits;
  size_t prompt = 0;
  double value = 0;
};

struct Guess {
  double mean = 0, deviation = 0;
};

/// The mean squared error of a video, relative to the square of the frames' range, is the sum of
///   q + b g (topk^-s - 1) exp(-d dense)        8-bit arithmetic, dropped blocks; g is 1 without a bound on errors
///   c (threshold / 0.1)^t exp(-f first)        reused steps
///   w                                          weights in fp8; for int8 another such number
/// Each prompt is some decibels easier or harder. The priors of the parameters describe the tiny model, from the tables
/// of assets/charts.
class NoiseModel {
 public:
  /// `prompts`: the number of prompts.
  explicit NoiseModel(size_t prompts);

  /// Fits the most likely parameters (Levenberg-Marquardt on the logarithm of the posterior).
  void fit(const std::vector<Decibels>& measured);
  /// Returns the expected mean over all prompts, and its deviation.
  Guess guess(const Traits& traits) const;
  /// Returns how many dB easier the prompt is than the mean.
  double ease(size_t prompt) const { return parameters_[parameters_.size() - prompts_ + prompt] - mean_ease(); }

 private:
  double mean_ease() const;
  double decibels(const std::vector<double>& parameters, const Traits& traits) const;
  /// Returns the derivatives of the decibels by each parameter; without a prompt, the derivatives of the average over
  /// all prompts.
  std::vector<double> slopes(const Traits& traits, std::optional<size_t> prompt = {}) const;
  double badness(const std::vector<double>& parameters, const std::vector<Decibels>& measured,
                 const std::vector<double>& variances) const;

  size_t prompts_;
  std::vector<double> prior_, spread_;  // mean and standard deviation of each parameter
  std::vector<double> parameters_;      // logarithms of factors, powers, then the ease of each prompt
  std::vector<double> covariance_;      // by rows
};

/// Standard deviations, in dB, of what the model does not explain: kOfCandidates is common to all videos of a
/// candidate, and kOfVideos is separate for each video.
constexpr double kOfCandidates = 1, kOfVideos = 1;

}  // namespace sparsereel::app::tuning
