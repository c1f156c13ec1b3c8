// Which steps of a denoising may be reused, and how. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/request/first_steps.h"

namespace sparsereel::models {

enum class CacheKind {
  first_block,  // the blocks after the first add what they added at the last computed step
  forecast,     // that, and their change since the computed step before it, as far as the first block went along
  steps,        // as forecast; which steps are computed is known beforehand
};

struct CacheRule {
  CacheKind kind = CacheKind::first_block;
  /// How much what the first block adds may change before a step is computed: mean |now - then| / mean |then|, `then`
  /// being the last step that was computed. 0: every step is computed.
  double threshold = 0;
  /// Kind steps has, in place of a threshold: how many of the run's steps are computed, spread evenly from the first to
  /// the last.
  int64_t steps = 0;
  /// Beside a threshold: these are computed whatever changes. What goes wrong early, all later steps build upon.
  FirstSteps first = {};

  bool on() const { return threshold > 0 || steps > 0; }
  /// Whether step `step` of a run of `run_steps` is reused; unset where its first block decides.
  std::optional<bool> reuses(int64_t step, int64_t run_steps) const;
  bool operator==(const CacheRule&) const = default;
};
/// "first-block:0.1", "forecast:0.1", "forecast:0.1:20%" where the first fifth is computed, "steps:20"
std::string name(const CacheRule& rule);
/// These, or "0.1": a first-block cache. Throws Error for any other text.
CacheRule parse_cache_rule(const std::string& text);

}  // namespace sparsereel::models
