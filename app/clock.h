// Measures elapsed time for the commands, and remembers when the process began.
#pragma once

#include <chrono>
#include <cstdint>

namespace sparsereel::app {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns the nanoseconds of CLOCK_BOOTTIME. Setting the system's clock does not change them.
int64_t boot_nanoseconds();

/// Sets when the program began, by boot_nanoseconds(). before_libraries.cpp calls this before any constructor has run,
/// so this function must not use an object that needs one.
void set_program_start(int64_t boot_nanoseconds);

/// Returns the seconds from the program's start to the first call of this function in main(): the time to load the
/// libraries. Returns 0 if the start was not set. Time before the process became this program, as in a shell that runs
/// `exec`, does not count.
double seconds_before_main();

/// Returns the time of the first call of this function or of seconds_before_main().
std::chrono::steady_clock::time_point main_start();

}  // namespace sparsereel::app
