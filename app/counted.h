// Numbers in messages.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sparsereel::app {

/// "1 row", "2 rows".
inline std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// With `digits` decimals.
inline std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

}  // namespace sparsereel::app
