// Plans and reports of the benchmarks that make whole videos.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/jobs/image.h"
#include "app/lab/bench/combinations.h"
#include "app/lab/measure/table.h"
#include "app/options/options.h"

namespace CLI {
class App;
}

namespace sparsereel::app::bench {

struct VideoPlan {
  RunOptions run;
  models::Request request;  // the request that all combinations share: full attention, without a cache
  models::Plan video = {};  // the resolved request, set by begin_report()
  std::shared_ptr<PictureFiles> pictures = std::make_shared<PictureFiles>();  // the request's images
  bool decode = true;                                                         // true if frames are needed
  Grid grid = {};
  std::vector<models::TunedProfile> profiles = {};
  std::vector<std::string> warnings = {};  // about options without effect
  bool caches_listed = false;              // true if --cache has a list of caches to compare

  /// Returns the video's plan with the combination's settings.
  models::Plan video_of(const Combination& combination) const;
};

/// Returns the plan without combinations and profiles.
VideoPlan make_video_plan(const GenerateOptions& given, const Lists& lists);

/// Resolves the request, checks the profiles, prints warnings, and begins the report. The report gets machine,
/// architecture and settings: model, LoRAs, dtype, size, tokens, guidance scale, sampler, steps, seed and the part of
/// the policy that all combinations share. `ranks` is the smallest number of ranks that make a video together.
void begin_report(const Settings& settings, VideoPlan& plan, const models::Checkpoint& folder,
                  const models::Pipeline& pipeline, RunReport& report, int64_t ranks = 1);

/// A callback that gets the rows that were measured so far, and the number of text tokens.
using Measured = std::function<void(Rows so_far, int64_t text_tokens)>;

/// Replaces the report's estimate of the text tokens by `text_tokens`, if the number depends on the prompt.
void settle_tokens(nlohmann::json& settings, const models::ModelSpec& spec, const models::Plan& video,
                   int64_t text_tokens);

/// Summarizes a report of begin_report(): "NVIDIA H200, random weights of some.yaml, bf16, 49 frames of 720x480 (17776
/// tokens, guidance batch 2), 4 steps, seed 42".
std::string run_summary(const nlohmann::json& report);

}  // namespace sparsereel::app::bench
