// What the benchmarks of whole videos share: what they run, and what they say about it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/jobs/image.h"
#include "app/lab/bench/combinations.h"
#include "app/options/options.h"

namespace CLI {
class App;
}

namespace sparsereel::app::bench {

struct VideoPlan {
  RunOptions run;
  models::Request request;  // but for what a combination says: it has no cache
  models::Plan video = {};  // of the request, by begin_report()
  std::shared_ptr<PictureFiles> pictures = std::make_shared<PictureFiles>();  // of its images
  bool decode = true;                                                         // its frames are wanted
  Grid grid = {};
  std::vector<models::TunedProfile> profiles = {};
  std::vector<std::string> warnings = {};  // of options without effect
  bool caches_listed = false;              // by the command line

  /// The video with what the combination says.
  models::Plan video_of(const Combination& combination) const;
};

/// But for its combinations and profiles.
VideoPlan make_video_plan(const GenerateOptions& given, const Lists& lists);

/// Resolves the request, checks the profiles, warns, and begins the report: machine, architecture and settings (model,
/// LoRAs, dtype, size, tokens, guidance, sampler, steps, seed and what all contenders share of the policy). ranks: the
/// fewest that make a video together.
void begin_report(const Settings& settings, VideoPlan& plan, const models::Checkpoint& folder,
                  const models::Pipeline& pipeline, RunReport& report, int64_t ranks = 1);

/// "NVIDIA H200, random weights of some.yaml, bf16, 49 frames of 720x480 (17776 tokens, guidance batch 2), 4
/// steps, seed 42", of a report that begin_report() began.
std::string run_summary(const nlohmann::json& report);

}  // namespace sparsereel::app::bench
