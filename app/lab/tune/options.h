// The options of `tune`: TuneOptions as the command line gives them, and TunePlan after they are checked.
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

/// The options of `tune` that `generate` does not have.
struct TuneOptions {
  std::string prompts;  // file of a prompt set; empty for --prompt
  std::string budget = "10m";
  std::optional<double> min_psnr, percentile, min_ssim, at_most;
  std::string times;  // reports of `bench pipeline`, a comma list; empty if none
  std::optional<double> l1, l2;
  int64_t samples = 6;
  int64_t videos = 4;
  std::string output = "profile.yaml";
  std::string heat_map;  // empty if none
};

/// A preset of the model, as a candidate.
struct Preset {
  std::string name;
  Candidate candidate;
};

struct TunePlan {
  RunOptions run;
  models::Request request;  // the request before tuning; the prompt of each video is set later
  std::shared_ptr<PictureFiles> pictures = std::make_shared<PictureFiles>();  // the request's images
  std::vector<std::string> prompts;
  std::string budget;  // as given
  double budget_seconds = 0;
  Goal goal;
  bool goal_asked = false;  // if false, the goal is the default of goal_of()
  Axes axes;
  std::vector<Preset> presets;
  std::map<std::string, std::string> given;  // the user's options of block selection, which go into the profile
  std::optional<bench::StepTimes> times;  // step times of another model, from --times, which replace this model's times
  attention::Bounds bounds;               // --l1 and --l2
  bool bounds_asked = false;  // true if the user gave --l1 or --l2: heads keep these bounds even where that is slower
  int64_t samples = 0;        // in how many steps of each prompt's run heads are measured
  int64_t videos = 0;         // number of prompts whose videos are compared; if 0, only heads are measured
  std::filesystem::path output, heat_map;
  std::vector<std::string> warnings;  // about options without effect

  /// Returns how many queries share one choice of blocks if each head has its own policy. On a CPU, 64: its tiles have
  /// 64 queries, so the finest choice costs nothing. On a GPU, the number of the untuned policy, because its kernels
  /// need that number.
  static int64_t selection_rows(const models::Plan& untuned) {
    return untuned.device == "cpu" ? 64 : untuned.attention_policy.selection_rows;
  }

  /// Returns the steps (from 0) of a prompt's run in which heads are measured. They are spread over the run and differ
  /// between prompts.
  std::vector<int64_t> sampled_steps(size_t prompt, int64_t steps) const;
};

/// Returns the seconds of "90s", "10m", "1h30m" or "45" (seconds). Throws Error for anything else.
double parse_duration(const std::string& text);

/// Checks the options and makes the plan. Throws Error naming an option that is out of range.
TunePlan make_tune_plan(const Settings& settings, const TuneOptions& options);

}  // namespace sparsereel::app::tuning
