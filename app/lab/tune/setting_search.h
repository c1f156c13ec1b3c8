// The search for a setting: which video to make next, and what to conclude. No timer, no tensor and no GPU: the caller
// makes the videos and reports what they gave.
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

/// What is asked of a setting. Of means over the prompts, and of the lowest of them.
struct Goal {
  std::optional<double> min_psnr = {}, min_ssim = {}, min_lowest = {};
  std::optional<double> at_most = {};  // seconds of a video's denoising: the nearest within them, else the fastest

  bool has_floor() const { return min_psnr || min_ssim || min_lowest; }
};

/// A video by a setting beside full attention's.
struct Seen {
  double psnr = 0, ssim = 0;
  double computed_steps = 0, computed_dense_steps = 0;  // of the latter: with every block
  double share = 1;                                     // of the blocks, in the others that were computed
};

/// Milliseconds of a step, by what it computes; unset: nobody knows.
struct StepCost {
  double own = 0, every_block = 0, reused = 0;
  bench::ShareTimes by_share = {};  // of a bound on the blocks' errors, where own and reused come from these

  /// With own and reused for such a share of the blocks.
  StepCost at(double share) const;
};
using Costs = std::function<std::optional<StepCost>(const Candidate&)>;

/// What is known of a candidate.
struct Standing {
  Candidate candidate;
  std::map<size_t, Seen> videos = {};  // by prompt
  double computed_steps = 0;           // expected, or the mean of what was seen
  double share = 1;                    // of the blocks, in steps that leave some out, likewise
  double seconds = 0;                  // of a video's denoising, likewise
  Guess psnr = {};                     // of the mean over all prompts; of some figure like it where SSIM decides

  double mean(double Seen::*figure) const;
  double lowest_psnr() const;
};

class SettingSearch {
 public:
  /// `prompts`: videos of a candidate; `steps`: of a video; `full_seconds`: of full attention's denoising.
  SettingSearch(const Goal& goal, size_t prompts, int64_t steps, double full_seconds);

  /// Searched from now on, beside the others; one that is known already is not added twice, nor one that nobody knows
  /// the times of. `first`: its first video is made before others are chosen, as those of presets are.
  void add(const std::vector<Candidate>& candidates, const Costs& costs, bool first = false);
  /// The video to make next; nothing: the search is over.
  struct Wanted {
    size_t candidate = 0, prompt = 0;
  };
  std::optional<Wanted> wanted() const;
  void report(size_t candidate, size_t prompt, const Seen& seen);

  const std::vector<Standing>& standings() const { return standings_; }
  std::optional<size_t> find(const Candidate& candidate) const;
  /// Every prompt has its video.
  bool complete(const Standing& standing) const { return standing.videos.size() == prompts_; }
  /// A complete one that reaches the goal, faster than full attention does.
  bool holds(const Standing& standing) const;
  /// Of those that hold the fastest, or, within a limit of seconds, the nearest to full attention; where none holds the
  /// one that comes next to it. Nothing where no video was made.
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
  std::vector<StepCost> costs_;  // of each
  std::vector<size_t> first_;
  std::set<size_t> seen_;  // that have videos
};

}  // namespace sparsereel::app::tuning
