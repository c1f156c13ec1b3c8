// Formats numbers in messages.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sparsereel::app {

/// Returns the count with its noun: "1 row" or "2 rows" for `what` "row".
inline std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

inline std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

/// Formats a value below `bound` with at least `digits` decimals. Uses more decimals if the rounded text would equal
/// the bound.
inline std::string fixed_below(double value, double bound, int digits) {
  constexpr int kMost = 17;
  std::string text = fixed(value, digits);
  while (value < bound && std::stod(text) >= bound && digits < kMost) text = fixed(value, ++digits);
  return text;
}

}  // namespace sparsereel::app
