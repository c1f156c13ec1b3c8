// A tuning run: settings are compared by whole videos, then the heads of the best one get blocks of their own where
// that gains.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/lab/tune/heads.h"
#include "app/lab/tune/setting_search.h"
#include "app/lab/tune/videos.h"

namespace sparsereel::app::tuning {

/// What is searched for.
struct Found {
  std::optional<SettingSearch> search;  // where videos were compared
  std::optional<size_t> best;           // of its candidates
  double full_seconds = 0;              // of a video's denoising by full attention
  std::optional<FoundHeads> heads;      // where they gain, or are all that was asked for
  Videos head_videos;                   // of these heads, by the best candidate
  double speedup = 1;                   // of a step by them
  double head_seconds = 0;              // of a video's denoising by them
  std::string no_heads;                 // why there are none
  bool complete = true;                 // the budget did not end the search
  std::string ended_before;             // what was not done then

  const Standing& setting() const { return search->standings().at(*best); }
  /// With the heads that were found.
  Standing chosen() const;
  bool passed() const { return !search || (best && search->holds(chosen())); }
};

class Session {
 public:
  explicit Session(const TuneContext& context) : context_(context), videos_(context) {}

  /// Throws Error where the budget ends before anything can be said.
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
