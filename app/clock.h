// The one stopwatch of the commands, and when the process began.
#pragma once

#include <chrono>
#include <cstdint>

namespace sparsereel::app {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Nanoseconds of CLOCK_BOOTTIME, which no change of the system's clock moves.
int64_t boot_nanoseconds();

/// Sets when the program began. before_libraries.cpp calls it before any constructor runs, so it must need none.
void set_program_start(int64_t boot_nanoseconds);

/// Seconds from the program's start, as set, to the first call, which main() makes: they load the libraries. 0 where
/// nobody set it. What the process did before it was this program, a shell that runs `exec` for one, does not count.
double seconds_before_main();

/// When main() began.
std::chrono::steady_clock::time_point main_start();

}  // namespace sparsereel::app
