// Numbers of things in messages.
#pragma once

#include <cstdint>
#include <string>

namespace sparsereel::app {

/// "1 row", "2 rows".
inline std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace sparsereel::app
