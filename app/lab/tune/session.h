// A tuning run. It compares settings by whole videos. Then it finds a policy for each head of the best setting. The
// result contains these policies if they make that setting faster and it still reaches the goal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/lab/tune/heads.h"
#include "app/lab/tune/setting_search.h"
#include "app/lab/tune/videos.h"

namespace sparsereel::app::tuning {

/// The result of a tuning run.
struct Found {
  std::optional<SettingSearch> search;  // set if videos were compared
  std::optional<size_t> best;           // index of the best candidate of `search`
  double full_seconds = 0;              // seconds of denoising a video by full attention
  std::optional<FoundHeads> heads;      // set if policies for heads make steps faster, or if only heads were measured
  Videos head_videos;                   // videos made with the best candidate and the policies of `heads`
  double speedup = 1;                   // speedup of a step by the policies of `heads`
  double head_seconds = 0;              // seconds of denoising a video with the policies of `heads`
  std::string no_heads;                 // why the result has no policies for heads
  bool complete = true;                 // false if the budget ended the search
  std::string ended_before;             // end of "the budget ended before ...", such as "all heads were measured"

  const Standing& setting() const { return search->standings().at(*best); }
  /// Returns the best candidate's results; if `heads` is set, its results with the policies of `heads`.
  Standing chosen() const;
  bool passed() const { return !search || (best && search->holds(chosen())); }
};

class Session {
 public:
  explicit Session(const TuneContext& context) : context_(context), videos_(context) {}

  /// Runs the search. Throws Error if the budget ends before there is any result.
  Found run();

 private:
  void search_setting(Found& found);
  void search_with(const std::string& weights, const bench::StepTimes& times, SettingSearch& search);
  void compare_presets(SettingSearch& search);
  void make(SettingSearch& search, size_t candidate, size_t prompt);
  void search_heads(Found& found);
  bool gain_by_heads(const Candidate& candidate, const HeadPhase& phase, Found& found);
  double seconds_by_heads(const Candidate& candidate, const HeadState& heads) const;
  double full_seconds(const bench::StepTimes& times) const;

  const TuneContext& context_;
  VideoRuns videos_;
};

}  // namespace sparsereel::app::tuning
