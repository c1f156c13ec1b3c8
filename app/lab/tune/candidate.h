// The settings from which `tune` chooses.
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
  // In mode sparse, at most one of these is set. If neither is, the user's settings say how many blocks are computed.
  std::optional<double> topk = {}, block_error = {};
  models::FirstSteps dense = {};  // in mode sparse, the first steps, which compute every block
  models::CacheRule cache = {};
  std::string weights = "auto";
  models::FirstSteps exact = {};  // the first steps, with full attention; only presets have such steps

  bool sparse() const { return mode == attention::Mode::sparse; }
  bool operator==(const Candidate&) const = default;
  /// Returns the values by option key, as in a profile.
  std::map<std::string, std::string> options() const;
};

/// Returns "topk 0.3, 20% dense, forecast:0.2:20%, weights fp8"; different candidates have different names.
std::string name(const Candidate& candidate);

/// The values that the search combines.
struct Axes {
  std::vector<std::optional<double>> topks;
  std::vector<double> block_errors;
  std::vector<models::FirstSteps> dense;
  std::vector<models::CacheRule> caches;
  std::vector<std::string> weights;
};

/// Returns the values of topk that are searched by default. If only a bound on errors is searched (--block-error),
/// steps are still timed with each of these values, because the time of such a step is interpolated between them.
std::vector<std::optional<double>> usual_topks();

/// For each option, returns the user's value if it is given, else the values to search by default. By default, the
/// weights to search include fp8, which `tune` replaces by int8 where int8 is faster.
Axes axes_of(const Settings& settings);

/// Returns every combination of the values with sparse, quantized and full attention, except full attention without a
/// cache and with weights "auto", which is the reference. Of candidates that compute the same in a run of `steps`
/// steps, returns only one.
std::vector<Candidate> candidates_of(const Axes& axes, int64_t steps);

/// Returns the candidate that these settings, such as those of a preset, describe.
Candidate candidate_of(const Settings& settings);

}  // namespace sparsereel::app::tuning
