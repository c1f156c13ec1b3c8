// The options of `bench pipeline`: PipelineOptions as the command line gives them, and PipelinePlan after they are
// checked.
#pragma once

#include <optional>
#include <string>

#include "app/lab/bench/video_plan.h"

namespace sparsereel::app::bench {

constexpr const char* kNoDryRun = "off";  // PipelineOptions::dry_run if --dry-run is not given

/// The options of `bench pipeline` that `generate` does not have. An unset option stands for its default.
struct PipelineOptions {
  std::string modes = "full,quantized,sparse";
  Lists lists;
  std::optional<int64_t> steps;
  std::optional<int64_t> warmup;
  std::optional<int64_t> repetitions;
  bool no_decode = false;
  std::string dry_run = kNoDryRun;  // --dry-run: "5180" (ms), "5180,340" (ms, GB/s); empty or "true" if without value
  std::string against;              // empty if none
  std::string heat_map;             // empty if none
  TableOptions table;
};

/// Adds the options that `generate` does not have, or that take lists in `bench pipeline`. `options` must outlive the
/// parsing.
void add_options(CLI::App& command, PipelineOptions& options);

struct PipelinePlan : VideoPlan {
  PipelineOptions options;
  int64_t video_steps = 0;  // steps of a whole video, for which times are extrapolated; 0 until choose_steps()
};

/// Returns the plan without the number of steps, which depends on the model. Throws Error naming an option that is out
/// of range.
PipelinePlan make_pipeline_plan(const Settings& settings, const PipelineOptions& options);

/// Sets how many steps are timed: --steps if given, else a few. If a contender has a cache, the default is all steps of
/// a video, because a few steps do not show how many are reused.
void choose_steps(const models::ModelSpec& spec, PipelinePlan& plan);

}  // namespace sparsereel::app::bench
