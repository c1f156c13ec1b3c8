// The options of `bench quality`: QualityOptions as the command line gives them, and QualityPlan after they are
// checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/lab/bench/step_times.h"
#include "app/lab/bench/video_plan.h"

namespace sparsereel::app::bench {

/// The options of `bench quality` that `generate` does not have. An unset option stands for its default.
struct QualityOptions {
  std::string prompts;  // file of a prompt set
  std::optional<int64_t> limit;
  Lists lists;
  std::optional<std::string> modes;
  std::string against;  // terms that name a row, see find_row(); empty if not given
  std::string times;    // reports of `bench pipeline`, a comma list; empty if none
  std::optional<int64_t> timed_steps;
  bool no_rel_l1 = false;
  std::string judge;     // the classifier; if empty, the one beside the model is used
  std::string plot;      // empty if none
  std::string pictures;  // empty if none
  TableOptions table;

  std::vector<std::string> profiles() const;  // files of --profile
};

/// Adds the options that `generate` does not have, or that take lists in `bench quality`. `options` must outlive the
/// parsing.
void add_options(CLI::App& command, QualityOptions& options);

struct QualityPlan : VideoPlan {
  /// The user's options, with three changes. If the user gave no classifier and the default one exists, `judge` holds
  /// the default. With --times, `timed_steps` is 0. If there are no times to draw, `plot` is empty.
  QualityOptions options;
  std::vector<std::string> prompts;
  std::optional<StepTimes> times = {};  // times from --times, which replace times of this run
  std::optional<size_t> against = {};   // the row that others are compared with, prompt by prompt

  /// Returns the combination with which all rows are compared: full attention without a cache.
  Combination full() const { return {.mode = attention::Mode::full, .order = request.token_order}; }
  /// Returns how many steps to time in each row without a cache. That is all steps of a video if --timed-steps is
  /// unset, and 0 for --timed-steps 0. Otherwise it is --timed-steps plus the largest number of dense steps of a row,
  /// so that both kinds of steps occur, but at most all steps. Call it once the number of steps is resolved.
  int64_t rounds_to_time() const;
  /// Returns true if rows with a cache are timed. They are timed only over whole videos, because a few steps do not
  /// show how many are reused.
  bool times_caches() const { return rounds_to_time() >= video.num_inference_steps; }
  /// Returns the plan of a prompt's video. A sparse combination runs in `mode`: sparse, or check, which also measures
  /// errors. As in `batch`, the seed grows by one from prompt to prompt.
  models::Plan video_of(size_t prompt, const Combination& combination, attention::Mode mode) const;
};

/// Returns the plan. Full attention without a cache is the reference, so it gets no row. If 8-bit weights are asked
/// for, the first rows are full attention with each listed kind of weights, whatever --modes says, to show what the
/// weights alone cost. If only presets are given, only presets get further rows. Throws Error for options out of range,
/// unreadable files, and if nothing is left to compare.
QualityPlan make_quality_plan(const Settings& settings, const QualityOptions& options);

/// Returns a warning if some rows are not timed, or if fewer steps are timed than asked for; else an empty string.
/// Throws Error if --plot would have nothing to draw. Call it once the number of steps is resolved.
std::string check_times(const QualityPlan& plan);

}  // namespace sparsereel::app::bench
