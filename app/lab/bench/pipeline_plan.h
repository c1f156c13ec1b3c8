// The options of `bench pipeline`, as given and as checked.
#pragma once

#include <optional>
#include <string>

#include "app/lab/bench/video_plan.h"

namespace sparsereel::app::bench {

constexpr const char* kNoDryRun = "off";

/// What the command has beside the options of `generate` that it takes; unset means the default.
struct PipelineOptions {
  std::string modes = "full,quantized,sparse";
  Lists lists;
  std::optional<int64_t> steps;
  std::optional<int64_t> warmup;
  std::optional<int64_t> repetitions;
  bool no_decode = false;
  std::string dry_run = kNoDryRun;  // empty or "true": without numbers; else "5180" or "5180,340"
  std::string against;              // empty: none
  std::string heat_map;             // empty: none
  TableOptions table;
};

/// Adds the options that `generate` has not, or that are lists here; `options` must outlive the parsing.
void add_options(CLI::App& command, PipelineOptions& options);

struct PipelinePlan : VideoPlan {
  PipelineOptions options;
  int64_t video_steps = 0;  // of a whole video, which is extrapolated to; 0 until choose_steps()
};

/// But for how many steps there are, which the model has a say in. Throws Error naming the option that is out of range.
PipelinePlan make_pipeline_plan(const Settings& settings, const PipelineOptions& options);

/// As many are timed as --steps says, or a few; with a cache all of a video, where a few do not tell how many it
/// reuses.
void choose_steps(const models::ModelSpec& spec, PipelinePlan& plan);

}  // namespace sparsereel::app::bench
