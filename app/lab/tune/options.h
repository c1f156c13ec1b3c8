// The options of `tune`, as given and as checked.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/image.h"
#include "app/lab/bench/step_times.h"
#include "app/lab/tune/candidate.h"
#include "app/lab/tune/setting_search.h"
#include "app/options/options.h"
#include "attention/policies/head_search.h"

namespace sparsereel::app::tuning {

/// What the command has beside the options of `generate` that it takes.
struct TuneOptions {
  std::string prompts;  // file of a prompt set; empty: --prompt
  std::string budget = "10m";
  std::optional<double> min_psnr, min_ssim, at_most;
  std::string times;  // reports of `bench pipeline`, a comma list; empty: none
  std::optional<double> l1, l2;
  int64_t samples = 6;
  int64_t videos = 4;
  std::string output = "profile.yaml";
  std::string heat_map;  // empty: none
};

/// A preset of the model, as a candidate.
struct Preset {
  std::string name;
  Candidate candidate;
};

struct TunePlan {
  RunOptions run;
  models::Request request;  // without a profile's policy; its prompt is none of the set's yet
  std::shared_ptr<PictureFiles> pictures = std::make_shared<PictureFiles>();  // of its images
  std::vector<std::string> prompts;
  std::string budget;  // as given
  double budget_seconds = 0;
  Goal goal;
  bool goal_asked = false;  // else it is what the preset balanced promises
  Axes axes;
  std::vector<Preset> presets;
  std::map<std::string, std::string> given;  // of the options that select blocks: in the profile as they are
  std::optional<bench::StepTimes> times;     // of another model, in place of this one's
  attention::Bounds bounds;
  bool bounds_asked = false;  // the heads keep them at any price; else only where they get no slower by it
  int64_t samples = 0;        // steps of each prompt's run in which heads are measured
  int64_t videos = 0;         // prompts of which whole videos are compared; 0: heads alone
  std::filesystem::path output, heat_map;
  std::vector<std::string> warnings;  // of options without effect

  /// Queries that share one selection in a policy for each head. A CPU's tiles have 64 rows, so that finer choices cost
  /// nothing there; a GPU's kernels want the policy's own.
  static int64_t selection_rows(const models::Plan& untuned) {
    return untuned.device == "cpu" ? 64 : untuned.attention_policy.selection_rows;
  }

  /// The steps (from 0) of that prompt's run in which heads are measured: spread over the run, and others for each
  /// prompt.
  std::vector<int64_t> sampled_steps(size_t prompt, int64_t steps) const;
};

/// "90s", "10m", "1h30m", "45" (seconds). Throws Error for anything else.
double parse_duration(const std::string& text);

/// Throws Error naming the option that is out of range.
TunePlan make_tune_plan(const Settings& settings, const TuneOptions& options);

}  // namespace sparsereel::app::tuning
