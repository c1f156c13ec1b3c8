// The rule by which denoising steps reuse results of earlier steps. A reused step runs only the transformer's first
// block. The step cache adds a residual in place of the later blocks. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/request/first_steps.h"

namespace sparsereel::models {

enum class CacheKind {
  first_block,  // adds the residual that the later blocks had in the last computed step
  /// Extrapolates: adds that residual plus a multiple of its change between the last two computed steps. The multiple
  /// is estimated from the first block: how far its residual has moved since the last computed step, relative to its
  /// own change between those two steps. It is close to 0 if the two moves point in different directions.
  forecast,
  steps,  // extrapolates like `forecast`; the computed steps are fixed beforehand
  /// Extrapolates like `forecast`. The threshold bounds the sum of the errors that the extrapolations are expected to
  /// have (CacheRule::threshold).
  measured,
};

struct CacheRule {
  CacheKind kind = CacheKind::first_block;
  /// A step is reused if the first block's residual has changed by less than this fraction since the last computed
  /// step: mean |now - then| / mean |then| < threshold. For kind `measured`, this fraction is multiplied by the square
  /// root of a ratio, and the products of consecutive reused steps are added up. The ratio comes from the last computed
  /// step: the relative error that a forecast would have had there, divided by the fraction there. 0 computes every
  /// step.
  double threshold = 0;
  /// For kind `steps`, in place of a threshold: the number of computed steps, spread evenly from the first to the last.
  int64_t steps = 0;
  /// With a threshold, these first steps are always computed, because an early error affects all later steps.
  FirstSteps first = {};
  /// With a threshold, this many steps at the end of the run are always computed, because the noise level changes most
  /// there.
  FirstSteps last = {};

  bool on() const { return threshold > 0 || steps > 0; }
  /// Returns true if step `step` of `run_steps` is reused, false if it is computed. Returns nothing if the change of
  /// the step's first block decides.
  std::optional<bool> reuses(int64_t step, int64_t run_steps) const;
  /// Returns for how many steps of a run reuses() returns false.
  int64_t certain_steps(int64_t run_steps) const;
  bool operator==(const CacheRule&) const = default;
};
/// Formats a rule: "first-block:0.1", "forecast:0.1", "steps:20", "forecast:0.1:20%" if the first fifth is computed, or
/// "forecast:0.1:20%:1" if the last step is computed too.
std::string name(const CacheRule& rule);
/// Parses the texts that name() returns, and "0.1" as a first-block cache. Throws Error for any other text.
CacheRule parse_cache_rule(const std::string& text);

}  // namespace sparsereel::models
