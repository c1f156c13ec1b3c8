// Decides which video to make next, and which setting is best. The caller makes the videos and reports the results, so
// this code needs no timer, no tensor and no GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/lab/bench/step_times.h"
#include "app/lab/tune/candidate.h"
#include "app/lab/tune/noise_model.h"

namespace sparsereel::app::tuning {

/// The goal: bounds on the mean PSNR and SSIM over the prompts, on a percentile of the PSNR, and on the seconds.
struct Goal {
  std::optional<double> min_psnr = {}, min_ssim = {};
  std::optional<double> min_tail = {};  // bound, in dB, on the percentile `tail` of the PSNR
  double tail = 0;                      // a percentile, 0 to 50; 0 stands for the lowest PSNR
  /// The most seconds of denoising. If set, the setting with the highest fidelity within these seconds wins.
  std::optional<double> at_most = {};

  bool has_floor() const { return min_psnr || min_ssim || min_tail; }
};

/// The measurements of a setting's video, compared with the video of full attention.
struct Seen {
  double psnr = 0, ssim = 0;
  double computed_steps = 0, computed_dense_steps = 0;  // computed steps; how many of them compute every block
  double share = 1;                                     // share of blocks that steps compute if they drop blocks
};

/// The milliseconds of a step: `own` with the candidate's blocks, `every_block` with all blocks, and `reused` if the
/// cache skips the step.
struct StepCost {
  double own = 0, every_block = 0, reused = 0;
  /// The time of a step by its share of blocks; set only if the candidate bounds the errors of blocks (--block-error).
  bench::ShareTimes by_share = {};

  /// Returns the cost if steps compute this share of blocks. If by_share is set, `own` and `reused` are computed from
  /// it.
  StepCost at(double share) const;
};
using Costs = std::function<std::optional<StepCost>(const Candidate&)>;

/// A candidate and the results of its videos so far.
struct Standing {
  Candidate candidate;
  std::map<size_t, Seen> videos = {};  // by prompt
  double computed_steps = 0;  // steps that the cache does not skip: expected, or the mean over the measured videos
  double share = 1;           // share of blocks that steps compute if they drop blocks; expected or measured
  double seconds = 0;         // seconds of denoising a video; expected or measured
  Guess psnr = {};            // expected mean of figure_of() over all prompts: the PSNR, unless the goal bounds SSIM

  double mean(double Seen::*figure) const;
  double lowest_psnr() const { return psnr_percentile(0); }
  /// Returns this percentile of the PSNR of its videos, interpolated between them.
  double psnr_percentile(double percentile) const;
};

/// Returns how sure it is, from 0 to 1, that at most `share` of all prompts have videos below a floor, if `below` of
/// `prompts` videos are below it. This is the confidence of a one-sided binomial test: 1 minus the probability that so
/// few of these videos are below the floor if exactly `share` of all prompts are. Assumes only that the prompts were
/// drawn at random from the prompts of interest.
double sureness(int64_t prompts, int64_t below, double share);

class SettingSearch {
 public:
  /// `prompts` is the number of videos per candidate, `steps` the steps of a video, `full_seconds` the time of
  /// denoising by full attention.
  SettingSearch(const Goal& goal, size_t prompts, int64_t steps, double full_seconds);

  /// Adds candidates to the search. Skips candidates that it already has, or for which `costs` returns nothing. If
  /// `first` (used for presets), wanted() returns a video of each of these candidates before it chooses among all.
  void add(const std::vector<Candidate>& candidates, const Costs& costs, bool first = false);
  /// A video to make: the index of its candidate, and of its prompt.
  struct Wanted {
    size_t candidate = 0, prompt = 0;
  };
  /// Returns the video to make next; nothing when the search is over.
  std::optional<Wanted> wanted() const;
  /// Takes the results of a video.
  void report(size_t candidate, size_t prompt, const Seen& seen);

  const std::vector<Standing>& standings() const { return standings_; }
  std::optional<size_t> find(const Candidate& candidate) const;
  /// Returns true if the candidate has a video of every prompt.
  bool complete(const Standing& standing) const { return standing.videos.size() == prompts_; }
  /// Returns true if the candidate is complete, reaches the goal and is faster than full attention.
  bool holds(const Standing& standing) const;
  /// Returns the fastest candidate for which holds() is true or, with a limit of seconds, the one with the highest
  /// fidelity. If holds() is true for none, returns the candidate closest to the goal. Returns nothing if no video was
  /// made.
  std::optional<size_t> best() const;

 private:
  double figure_of(const Seen& seen) const;
  double floor() const;
  bool has_time(const Standing& standing) const;
  void update();
  void update_times(Standing& standing) const;
  Traits traits(const Standing& standing) const;
  void guess(Standing& standing) const;
  double chance(const Standing& standing) const;
  double tail_chance(const Standing& standing) const;
  double gain(const Standing& standing, const std::optional<size_t>& best) const;
  double steps_by(const Candidate& candidate, double share) const;
  double share_by(const Candidate& candidate) const;
  double correction(const Candidate& candidate) const;
  std::optional<size_t> nearest() const;
  size_t next_prompt(const Standing& standing) const;

  Goal goal_;
  size_t prompts_;
  int64_t steps_;
  double full_seconds_;
  NoiseModel model_;
  std::vector<Standing> standings_;
  std::vector<StepCost> costs_;  // of each candidate
  std::vector<size_t> first_;
  std::set<size_t> seen_;  // candidates that have videos
};

}  // namespace sparsereel::app::tuning
