// Predicts how much fidelity settings lose, from videos of a few measured settings. The loss is the sum of the errors
// of dropped blocks, reused steps and 8-bit weights. This header does not use torch.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "app/lab/tune/candidate.h"

namespace sparsereel::app::tuning {

/// The properties of a candidate from which the noise model predicts.
struct Traits {
  bool quantized = true;  // true if blocks are computed in 8 bits
  double topk = 1;        // share of blocks that are computed
  bool bounded = false;   // true if one bound on the errors of blocks (--block-error) chooses the blocks
  double dense = 0;       // share of steps that compute every block
  double threshold = 0;   // threshold of the cache; 0 without a cache
  double first = 0;       // share of a run's steps, at its start, that the cache may not skip
  bool fp8 = false;       // weights in fp8
  bool int8 = false;      // weights in int8
};
/// Returns the traits. If `share` is set, it is the share of blocks, in place of usual_share().
Traits traits_of(const Candidate& candidate, int64_t steps, std::optional<double> share = {});
/// Returns the share of blocks that a candidate computes in steps that drop blocks: its topk, or 0.3 if it has neither
/// topk nor bound. If it has a bound on the errors of blocks, returns about the share that the tiny model computes at
/// 256 x 256. That result exceeds 1 if the bound is so small that all blocks are computed.
double usual_share(const Candidate& candidate);

/// A measured video: its PSNR against the same video made with full attention, or another figure on that scale, in dB.
struct Decibels {
  Traits traits;
  size_t prompt = 0;
  double value = 0;
};

struct Guess {
  double mean = 0, deviation = 0;
};

/// The mean squared error of a video, relative to the square of the frames' range, is modeled as the sum of
///   q + b g (topk^-s - 1) exp(-d dense)        8-bit arithmetic, dropped blocks; g is 1 without a bound on errors
///   c (threshold / 0.1)^t exp(-f first)        reused steps
///   w                                          weights in fp8; weights in int8 have another such number
/// topk, dense, threshold and first are those of Traits; the other letters are parameters, which fit() determines. Each
/// prompt also has a parameter: by how many decibels it is easier than others. The priors of the parameters describe
/// the tiny model; they come from the tables of assets/charts.
class NoiseModel {
 public:
  /// `prompts` is the number of prompts.
  explicit NoiseModel(size_t prompts);

  /// Fits the most likely parameters (Levenberg-Marquardt on the logarithm of the posterior).
  void fit(const std::vector<Decibels>& measured);
  /// Returns the expected mean over all prompts in dB, and its standard deviation.
  Guess guess(const Traits& traits) const;
  /// Returns how many dB easier the prompt is than the mean prompt.
  double ease(size_t prompt) const { return parameters_[parameters_.size() - prompts_ + prompt] - mean_ease(); }

 private:
  double mean_ease() const;
  double decibels(const std::vector<double>& parameters, const Traits& traits) const;
  /// Returns the derivatives of decibels() with respect to each parameter, for this prompt. Without a prompt, returns
  /// the derivatives of the mean over all prompts.
  std::vector<double> slopes(const Traits& traits, std::optional<size_t> prompt = {}) const;
  double badness(const std::vector<double>& parameters, const std::vector<Decibels>& measured,
                 const std::vector<double>& variances) const;

  size_t prompts_;
  std::vector<double> prior_, spread_;  // mean and standard deviation of each parameter's prior
  /// In this order: log q, log b, s, d, log c, t, f, log w, log w of int8, log g; then, for each prompt, by how many
  /// decibels it is easier than others. ease() subtracts the mean of these decibels.
  std::vector<double> parameters_;
  std::vector<double> covariance_;  // covariance of the fitted parameters, row by row
};

/// The standard deviations, in dB, of errors that the model does not explain. Each candidate has an error of deviation
/// kOfCandidates, which all its videos share. Each video has another error of deviation kOfVideos.
constexpr double kOfCandidates = 1, kOfVideos = 1;

}  // namespace sparsereel::app::tuning
