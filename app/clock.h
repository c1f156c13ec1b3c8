// The one stopwatch of the commands, and when the process began.
#pragma once

#include <chrono>

namespace sparsereel::app {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Seconds that the system took to start the process and to load its libraries. The first call, at the beginning of
/// main(), decides; to 1/100 s.
double seconds_before_main();

/// When main() began.
std::chrono::steady_clock::time_point main_start();

}  // namespace sparsereel::app
