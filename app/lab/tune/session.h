// A tuning run: compares settings by whole videos, then gives the heads of the best one their own blocks if that gains.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/lab/tune/heads.h"
#include "app/lab/tune/setting_search.h"
#include "app/lab/tune/videos.h"

namespace sparsereel::app::tuning {

/// The result of the search.
struct Found {
  std::optional<SettingSearch> search;  // set if videos were compared
  std::optional<size_t> best;           // index of its best candidate
  double full_seconds = 0;              // seconds of denoising a video by full attention
  std::optional<FoundHeads> heads;      // set if heads gain, or if only they were asked for
  Videos head_videos;                   // videos made with these heads and the best candidate
  double speedup = 1;                   // speedup of a step with these heads
  double head_seconds = 0;              // seconds of denoising a video with these heads
  std::string no_heads;                 // why heads have no blocks of their own
  bool complete = true;                 // false if the budget ended the search
  std::string ended_before;             // what the budget ended before: "all heads were measured"

  const Standing& setting() const { return search->standings().at(*best); }
  /// Returns the best standing, with the heads that were found.
  Standing chosen() const;
  bool passed() const { return !search || (best && search->holds(chosen())); }
};

class Session {
 public:
  explicit Session(const TuneContext& context) : context_(context), videos_(context) {}

  /// Throws Error if the budget ends before there is any result.
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
