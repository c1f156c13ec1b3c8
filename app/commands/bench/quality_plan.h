// The options of `bench quality`, as given and as checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/options.h"
#include "app/commands/bench/quality_grid.h"
#include "app/options/options.h"

namespace sparsereel::app::bench {

/// What the command has beside the options of `generate` that it takes; unset means the default.
struct QualityOptions {
  std::string prompts;  // file of a prompt set
  std::optional<int64_t> limit;
  QualityLists lists;
  std::optional<int64_t> timed_steps;
  bool no_rel_l1 = false;
  std::string judge;     // empty: the one beside the model
  std::string plot;      // empty: none
  std::string pictures;  // empty: none
  std::optional<std::string> format;
  std::string output;  // empty: stdout
};

struct QualityPlan {
  RunOptions run;
  models::GenerateRequest request;  // but for what prompt and combination say
  std::vector<std::string> prompts;
  QualityGrid grid;
  std::vector<TunedProfile> profiles;
  std::optional<int64_t> timed_steps;  // unset: all of a run
  bool check = true;                   // measure attention's error
  std::filesystem::path judge, plot, pictures;
  Format format = Format::markdown;
  std::vector<std::string> warnings;  // of options without effect

  /// Full attention; the seed grows by one from prompt to prompt, as in `batch`.
  models::GenerateRequest request_of(size_t prompt) const;
  /// From the same noise, blocks left out by this mode, or steps.
  models::GenerateRequest request_of(size_t prompt, const Combination& combination, attention::Mode mode) const;
};

/// Throws Error naming the option that is out of range, and files that cannot be read.
QualityPlan make_quality_plan(const Settings& settings, const QualityOptions& options);

}  // namespace sparsereel::app::bench
