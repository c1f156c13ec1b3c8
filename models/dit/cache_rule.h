// Which steps of a denoising may be reused, and how. No torch.
#pragma once

#include <string>

namespace sparsereel::models {

enum class CacheKind {
  first_block,  // the blocks after the first add what they added at the last computed step
  forecast,     // that, and their change since the computed step before it, as far as the first block went along
};

struct CacheRule {
  CacheKind kind = CacheKind::first_block;
  /// How much what the first block adds may change before a step is computed: mean |now - then| / mean |then|, `then`
  /// being the last step that was computed. 0: every step is computed.
  double threshold = 0;

  bool on() const { return threshold > 0; }
  bool operator==(const CacheRule&) const = default;
};
/// "first-block:0.1", "forecast:0.1"
std::string name(const CacheRule& rule);
/// These, or "0.1": a first-block cache. Throws Error for any other text.
CacheRule parse_cache_rule(const std::string& text);

}  // namespace sparsereel::models
