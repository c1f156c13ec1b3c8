// The rule by which denoising steps reuse earlier work. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/request/first_steps.h"

namespace sparsereel::models {

enum class CacheKind {
  first_block,  // the later blocks add the same residual as at the last computed step
  /// the later blocks add that residual plus its change between the last two computed steps, scaled by how far the
  /// first block repeats its own change
  forecast,
  steps,  // as `forecast`, but the computed steps are fixed beforehand
};

struct CacheRule {
  CacheKind kind = CacheKind::first_block;
  /// The largest change of the first block's residual for which a step is reused: mean |now - then| / mean |then|.
  /// `then` is the last computed step. 0 computes every step.
  double threshold = 0;
  /// For kind `steps`, in place of a threshold: the number of computed steps, spread evenly from the first to the last.
  int64_t steps = 0;
  /// With a threshold, these steps are always computed, because all later steps build on early errors.
  FirstSteps first = {};

  bool on() const { return threshold > 0 || steps > 0; }
  /// Returns true if step `step` of `run_steps` is reused; unset if its first block decides.
  std::optional<bool> reuses(int64_t step, int64_t run_steps) const;
  bool operator==(const CacheRule&) const = default;
};
/// Formats a rule: "first-block:0.1", "forecast:0.1", "steps:20", or "forecast:0.1:20%" if the first fifth is computed.
std::string name(const CacheRule& rule);
/// Parses the texts that name() returns, and "0.1" as a first-block cache. Throws Error for any other text.
CacheRule parse_cache_rule(const std::string& text);

}  // namespace sparsereel::models
