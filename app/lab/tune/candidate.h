// A setting that `tune` may choose, and all of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/options/settings.h"
#include "attention/call_policy.h"
#include "models/request/cache_rule.h"
#include "models/request/first_steps.h"

namespace sparsereel::app::tuning {

/// What a preset says of a run.
struct Candidate {
  attention::Mode mode = attention::Mode::sparse;
  // Of mode sparse one of these two; neither: blocks are selected as the settings say.
  std::optional<double> topk = {}, block_error = {};
  models::FirstSteps dense = {};  // steps with every block, of mode sparse
  models::CacheRule cache = {};
  std::string weights = "auto";

  bool sparse() const { return mode == attention::Mode::sparse; }
  bool operator==(const Candidate&) const = default;
  /// By the options' names, as a profile has them.
  std::map<std::string, std::string> options() const;
};

/// "topk 0.3, 20% dense, forecast:0.2:20%, weights fp8": no two have the same.
std::string name(const Candidate& candidate);

/// The values that are searched.
struct Axes {
  std::vector<std::optional<double>> topks;
  std::vector<double> block_errors;
  std::vector<models::FirstSteps> dense;
  std::vector<models::CacheRule> caches;
  std::vector<std::string> weights;
};

/// Shares of blocks that are searched, and that steps are timed by.
std::vector<std::optional<double>> usual_topks();

/// What is given by the user stays as it is given; the rest has its usual values.
Axes axes_of(const Settings& settings);

/// Every combination of the values, in sparse, quantized and full attention, but for that which all are compared with;
/// no two are the same in a run of so many steps.
std::vector<Candidate> candidates_of(const Axes& axes, int64_t steps);

/// What the settings say, as a preset's.
Candidate candidate_of(const Settings& settings);

}  // namespace sparsereel::app::tuning
