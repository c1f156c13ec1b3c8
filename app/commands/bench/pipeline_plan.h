// The options of `bench pipeline`, as given and as checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/options.h"
#include "app/options/options.h"

namespace sparsereel::app::bench {

/// What the command has beside the options of `generate` that it takes; unset means the default.
struct PipelineOptions {
  std::string modes = "full,quantized,sparse";
  SelectionLists sparse;
  std::optional<std::string> token_orders, caches;
  std::optional<int64_t> steps;
  std::optional<int64_t> warmup;
  std::optional<int64_t> repetitions;
  bool no_decode = false;
  std::string against;   // empty: none
  std::string heat_map;  // empty: none
  std::optional<std::string> format;
  std::string output;  // empty: stdout
};

/// One way to denoise: a mode, each with every cache; all of them share seed, noise and prompt.
struct PipelineContender {
  attention::Mode mode = attention::Mode::full;
  std::optional<attention::Policy> policy;  // of mode sparse
  bool profile = false;                     // sparse as --profile says
  hilbert::TokenOrder order = hilbert::TokenOrder::hilbert;
  models::CacheRule cache{};
};

struct PipelinePlan {
  RunOptions run;
  models::GenerateRequest request;  // but for what the contender says; its policy is the profile's where one is given
  std::optional<TunedProfile> profile;
  std::vector<PipelineContender> contenders;
  std::vector<std::string> left_out;  // of the lists of selections, a sentence each
  std::vector<std::string> warnings;  // of options without effect
  std::string heat_map;               // empty: none
  int64_t video_steps = 0;            // of a whole video, which is extrapolated to; 0 until choose_steps()
  std::optional<int64_t> warmup, repetitions;
  bool decode = true;
  Format format = Format::markdown;

  models::GenerateRequest request_of(const PipelineContender& contender) const;
};

/// But for how many steps there are, which the model has a say in. Throws Error naming the option that is out of range.
PipelinePlan make_pipeline_plan(const Settings& settings, const PipelineOptions& options);

/// As many are timed as --steps says, or a few; with a cache all of a video, where a few do not tell how many it
/// reuses.
void choose_steps(const PipelineOptions& options, const models::ModelSpec& spec, PipelinePlan& plan);

}  // namespace sparsereel::app::bench
