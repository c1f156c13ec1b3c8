// Decides which video to make next and which setting is best. Uses no timer, no tensor and no GPU: the caller makes the
// videos and reports the results.
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

/// The goal: bounds on averages over the prompts, and on a percentile of the PSNR over them.
struct Goal {
  std::optional<double> min_psnr = {}, min_ssim = {};
  std::optional<double> min_tail = {};  // bound on the percentile `tail`
  double tail = 0;                      // 0 to 50; 0 is the lowest PSNR
  std::optional<double> at_most = {};   // most seconds of denoising; if set, the highest fidelity wins

  bool has_floor() const { return min_psnr || min_ssim || min_tail; }
};

/// The measurements of a setting's video, compared with the video of full attention.
struct Seen {
  double psnr = 0, ssim = 0;
  double computed_steps = 0, computed_dense_steps = 0;  // the dense ones compute every block, and count as computed too
  double share = 1;                                     // share of blocks in the other computed steps
};

/// Milliseconds of a step: `own` with the candidate's blocks, `every_block`, or `reused` by a cache.
struct StepCost {
  double own = 0, every_block = 0, reused = 0;
  bench::ShareTimes by_share = {};  // for a bound on the blocks' errors; own and reused come from it

  /// Returns the cost with own and reused for this share of blocks.
  StepCost at(double share) const;
};
using Costs = std::function<std::optional<StepCost>(const Candidate&)>;

/// A candidate and the results of its videos so far.
struct Standing {
  Candidate candidate;
  std::map<size_t, Seen> videos = {};  // by prompt
  double computed_steps = 0;           // expected, or the mean of the measured ones
  double share = 1;                    // share of blocks in steps that drop some; expected or measured
  double seconds = 0;                  // seconds of denoising a video; expected or measured
  Guess psnr = {};                     // PSNR averaged over all prompts; if SSIM decides, a comparable figure

  double mean(double Seen::*figure) const;
  double lowest_psnr() const { return psnr_percentile(0); }
  /// Returns this percentile of the PSNR of its videos, interpolated between them.
  double psnr_percentile(double percentile) const;
};

/// Returns how sure it is, 0 to 1, that at most `share` of all prompts have videos below a floor, if `below` of
/// `prompts` videos are. It is the confidence of a one-sided test of the binomial distribution: 1 minus the probability
/// of so few videos below the floor if exactly `share` of all prompts were below it. Assumes that the prompts were
/// drawn from the prompts of interest, and nothing else.
double sureness(int64_t prompts, int64_t below, double share);

class SettingSearch {
 public:
  /// `prompts` is the number of videos per candidate, `steps` the steps of a video, `full_seconds` the time of
  /// denoising by full attention.
  SettingSearch(const Goal& goal, size_t prompts, int64_t steps, double full_seconds);

  /// Adds candidates to the search. Skips candidates that are known, or whose times are unknown. With `first`, as for
  /// presets, their first videos are made before others are chosen.
  void add(const std::vector<Candidate>& candidates, const Costs& costs, bool first = false);
  /// The video to make next. wanted() returns nothing when the search is over.
  struct Wanted {
    size_t candidate = 0, prompt = 0;
  };
  std::optional<Wanted> wanted() const;
  void report(size_t candidate, size_t prompt, const Seen& seen);

  const std::vector<Standing>& standings() const { return standings_; }
  std::optional<size_t> find(const Candidate& candidate) const;
  /// Returns true if every prompt has its video.
  bool complete(const Standing& standing) const { return standing.videos.size() == prompts_; }
  /// Returns true if the candidate is complete, reaches the goal and is faster than full attention.
  bool holds(const Standing& standing) const;
  /// Returns the fastest candidate for which holds() is true or, with a limit of seconds, the one with the highest
  /// fidelity. If there is none, returns the one closest to the goal. Returns nothing if no video was made.
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
