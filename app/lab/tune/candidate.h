// The settings that `tune` may choose from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/options/option_table.h"
#include "attention/call_policy.h"
#include "models/request/cache_rule.h"
#include "models/request/first_steps.h"

namespace sparsereel::app::tuning {

/// One setting that `tune` may choose, with the same parts as a preset.
struct Candidate {
  attention::Mode mode = attention::Mode::sparse;
  // Mode sparse has at most one of these two. Without either, the settings select the blocks.
  std::optional<double> topk = {}, block_error = {};
  models::FirstSteps dense = {};  // steps with every block, in mode sparse
  models::CacheRule cache = {};
  std::string weights = "auto";
  models::FirstSteps exact = {};  // steps with full attention; only presets have them

  bool sparse() const { return mode == attention::Mode::sparse; }
  bool operator==(const Candidate&) const = default;
  /// Returns the values by option name, as in a profile.
  std::map<std::string, std::string> options() const;
};

/// Returns "topk 0.3, 20% dense, forecast:0.2:20%, weights fp8"; names are unique.
std::string name(const Candidate& candidate);

/// The values that are searched.
struct Axes {
  std::vector<std::optional<double>> topks;
  std::vector<double> block_errors;
  std::vector<models::FirstSteps> dense;
  std::vector<models::CacheRule> caches;
  std::vector<std::string> weights;
};

/// Returns the default values of topk: they are searched, and steps are timed for each.
std::vector<std::optional<double>> usual_topks();

/// Returns, for each option, the user's value if given, else the values to search by default. These contain fp8, which
/// `tune` replaces by int8 where that is faster.
Axes axes_of(const Settings& settings);

/// Returns every combination of the values in sparse, quantized and full attention, except the reference. Candidates
/// that are equal in a run of `steps` steps are returned once.
std::vector<Candidate> candidates_of(const Axes& axes, int64_t steps);

Candidate candidate_of(const Settings& settings);

}  // namespace sparsereel::app::tuning
