// The results of `bench quality` and how they are written: Markdown, CSV, JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/judge.h"
#include "app/commands/bench/quality_grid.h"

namespace sparsereel::app::bench {

/// One prompt's video by a combination, beside the one by full attention from the same noise. What was not measured is
/// unset.
struct PromptFigures {
  std::string prompt;
  std::optional<double> psnr, ssim;  // of the frames
  std::optional<double> rel_l1;      // of attention: mean over its calls, against exact attention on the same inputs
  std::optional<double> predicted_error;
  double sparsity = 0;        // share of attention's work left out, the means' cost not counted
  double mean_share = 0;      // what the means cost, as a share of full attention's work
  double computed_steps = 0;  // that were not reused
  std::optional<Verdict> verdict;
};

/// A combination over all prompts.
struct QualityRow {
  Combination combination;
  std::vector<PromptFigures> prompts;
  std::optional<double> step_ms, full_step_ms;  // medians, of steps that took turns; with a cache the mean
  std::string kernel;
  std::string note;  // why there is no figure, or what to know about them

  /// Mean of a figure over the prompts that have it; nothing where none has.
  std::optional<double> mean(std::optional<double> PromptFigures::*figure) const;
  double mean(double PromptFigures::*figure) const;
  std::optional<double> lowest_psnr() const;
  std::optional<VerdictCount> verdicts() const;
};

std::string quality_markdown(const std::vector<QualityRow>& rows);
/// RFC 4180, every column; the head names the units.
std::string quality_csv(const std::vector<QualityRow>& rows);
nlohmann::json quality_json(const std::vector<QualityRow>& rows);
/// {"prompts": 20, "right": 19, "shape": [20, 20], ...}: right and told of each trait.
nlohmann::json verdict_json(const VerdictCount& count);

}  // namespace sparsereel::app::bench
