// Converts cache rules to texts and back.
#include "models/request/cache_rule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"

namespace sparsereel::models {
namespace {

// In CacheKind's order.
constexpr std::array<std::string_view, 4> kNames = {"first-block", "forecast", "steps", "measured"};

CacheKind parse_kind(const std::string& word, const std::string& text) {
  const auto found = std::ranges::find(kNames, word);
  if (found != kNames.end()) return static_cast<CacheKind>(found - kNames.begin());
  throw bad_option("cache", text + ": " + word + " is not a kind of cache",
                   "use first-block, forecast, measured or steps, as in forecast:0.1 or steps:20");
}

double parse_threshold(const std::string& number, const std::string& text) {
  double threshold = 0;
  const char* end = number.data() + number.size();
  const auto [stop, code] = std::from_chars(number.data(), end, threshold);
  if (code == std::errc() && stop == end && std::isfinite(threshold) && threshold >= 0) return threshold;
  throw bad_option("cache", text + ": the threshold must be a finite number of at least 0",
                   "use 0 for no cache; usual values are 0.05 to 0.2");
}

int64_t parse_steps(const std::string& number, const std::string& text) {
  int64_t steps = 0;
  const char* end = number.data() + number.size();
  const auto [stop, code] = std::from_chars(number.data(), end, steps);
  if (code == std::errc() && stop == end && steps > 0) return steps;
  throw bad_option("cache", text + ": the number of steps must be a whole number of at least 1",
                   "give the number of steps that the run computes, as in steps:20");
}

}  // namespace

std::optional<bool> CacheRule::reuses(int64_t step, int64_t run_steps) const {
  if (step == 0) return false;  // no earlier step can be reused
  if (kind != CacheKind::steps) {
    const bool computed = step < first.of(run_steps) || step >= run_steps - last.of(run_steps);
    return computed ? std::optional(false) : std::nullopt;
  }
  if (steps >= run_steps) return false;
  const int64_t gaps = steps - 1, end = run_steps - 1;
  if (gaps == 0) return true;
  // The computed steps are round(k * end / gaps) for k = 0..gaps. This step can only be the one with k = round(step *
  // gaps / end).
  const int64_t k = (2 * step * gaps + end) / (2 * end);
  return (2 * k * end + gaps) / (2 * gaps) != step;
}

int64_t CacheRule::certain_steps(int64_t run_steps) const {
  if (kind == CacheKind::steps) return std::min(steps, run_steps);
  const int64_t at_first = std::min(run_steps, std::max<int64_t>(first.of(run_steps), 1));
  return at_first + std::min(last.of(run_steps), run_steps - at_first);
}

std::string name(const CacheRule& rule) {
  const std::string kind(kNames.at(static_cast<size_t>(rule.kind)));
  if (rule.kind == CacheKind::steps) return kind + ":" + std::to_string(rule.steps);
  const std::string text = kind + ":" + exact_text(rule.threshold);
  if (rule.last != FirstSteps{}) return text + ":" + name(rule.first) + ":" + name(rule.last);
  return rule.first == FirstSteps{} ? text : text + ":" + name(rule.first);
}

CacheRule parse_cache_rule(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {.threshold = parse_threshold(text, text)};
  const CacheKind kind = parse_kind(text.substr(0, colon), text);
  const std::string number = text.substr(colon + 1);
  if (kind == CacheKind::steps) return {.kind = kind, .steps = parse_steps(number, text)};
  const size_t second = number.find(':');
  CacheRule rule{.kind = kind, .threshold = parse_threshold(number.substr(0, second), text)};
  if (second == std::string::npos) return rule;
  const std::string computed = number.substr(second + 1);
  const size_t third = computed.find(':');
  rule.first = parse_first_steps(computed.substr(0, third), "cache");
  if (third != std::string::npos) rule.last = parse_first_steps(computed.substr(third + 1), "cache");
  return rule;
}

}  // namespace sparsereel::models
