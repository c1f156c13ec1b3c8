// Rules as texts; see cache_rule.h.
#include "models/dit/cache_rule.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

std::string_view name(CacheKind kind) {
  return kind == CacheKind::first_block ? "first-block" : "forecast";
}

CacheKind parse_kind(const std::string& word, const std::string& text) {
  for (const CacheKind kind : {CacheKind::first_block, CacheKind::forecast})
    if (word == name(kind)) return kind;
  throw bad_option("cache", text + ": " + word + " is no kind of cache",
                   "use first-block or forecast, as in first-block:0.1");
}

double parse_threshold(const std::string& number, const std::string& text) {
  double threshold = 0;
  const char* end = number.data() + number.size();
  const auto [stop, code] = std::from_chars(number.data(), end, threshold);
  if (code == std::errc() && stop == end && std::isfinite(threshold) && threshold >= 0) return threshold;
  throw bad_option("cache", text + ": a finite number from 0 up is needed",
                   "use 0 for no cache, 0.05 to 0.2 as usual values");
}

}  // namespace

std::string name(const CacheRule& rule) {
  std::array<char, 32> digits{};  // as many as tell the number from all others
  const auto [end, code] = std::to_chars(digits.begin(), digits.end(), rule.threshold);
  return std::string(name(rule.kind)) + ":" + std::string(digits.begin(), end);
}

CacheRule parse_cache_rule(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {.threshold = parse_threshold(text, text)};
  return {.kind = parse_kind(text.substr(0, colon), text), .threshold = parse_threshold(text.substr(colon + 1), text)};
}

}  // namespace sparsereel::models
