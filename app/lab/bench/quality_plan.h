// The options of `bench quality`, as given and as checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/lab/bench/step_times.h"
#include "app/lab/bench/video_plan.h"

namespace sparsereel::app::bench {

/// What the command has beside the options of `generate` that it takes; unset means the default.
struct QualityOptions {
  std::string prompts;  // file of a prompt set
  std::optional<int64_t> limit;
  Lists lists;
  std::optional<std::string> modes;
  std::string against;  // terms of a row; empty: none
  std::string times;    // reports of `bench pipeline`, a comma list; empty: none
  std::optional<int64_t> timed_steps;
  bool no_rel_l1 = false;
  std::string judge;     // empty: the one beside the model
  std::string plot;      // empty: none
  std::string pictures;  // empty: none
  TableOptions table;

  std::vector<std::string> profiles() const;  // files of --profile
};

/// Adds the options that `generate` has not, or that are lists here; `options` must outlive the parsing.
void add_options(CLI::App& command, QualityOptions& options);

struct QualityPlan : VideoPlan {
  QualityOptions options;  // judge: the one beside the model, too; plot: none where there are no times
  std::vector<std::string> prompts;
  std::optional<StepTimes> times = {};  // that stand in place of this run's
  std::optional<size_t> against = {};   // the row that others are compared with prompt by prompt

  /// What all are compared with.
  Combination full() const { return {.mode = attention::Mode::full, .order = request.token_order}; }
  /// Steps to time of each row that has no cache: as many as are asked for beyond the dense ones, so that both kinds
  /// are among them. To be asked once the number of steps is resolved.
  int64_t rounds_to_time() const;
  /// Rows with a cache are timed by whole videos, or not at all: a few steps do not tell how many are reused.
  bool times_caches() const { return rounds_to_time() >= video.num_inference_steps; }
  /// Blocks left out by this mode. The seed grows by one from prompt to prompt, as in `batch`.
  models::Plan video_of(size_t prompt, const Combination& combination, attention::Mode mode) const;
};

/// Full attention without a cache is what all are compared with, and no row, unless weights are reduced: then it is the
/// first one, whatever the modes, and tells what the weights alone cost. Presets alone have no other rows. Throws Error
/// naming the option that is out of range, files that cannot be read, and where nothing is left to compare.
QualityPlan make_quality_plan(const Settings& settings, const QualityOptions& options);

/// Once the number of steps is resolved: throws Error where --plot would have nothing to draw. Returns a warning where
/// some rows are not timed, or fewer steps than were asked for; else nothing.
std::string check_times(const QualityPlan& plan);

}  // namespace sparsereel::app::bench
