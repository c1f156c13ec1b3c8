// Measures elapsed time for the commands, and keeps the time at which the process began.
#pragma once

#include <chrono>
#include <cstdint>

namespace sparsereel::app {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns CLOCK_BOOTTIME in nanoseconds: the time since the machine booted. Setting the system's clock does not change
/// it.
int64_t boot_nanoseconds();

/// Sets the time at which the program began, as boot_nanoseconds() returns it. before_libraries.cpp calls this before
/// any constructor has run, so this function must not use an object that needs a constructor.
void set_program_start(int64_t boot_nanoseconds);

/// Returns the seconds from the program's start to the first call of this function, which run_program() makes at once.
/// Loading the libraries takes most of this time. Returns 0 if the start was not set. If another program, such as a
/// shell, became this one by `exec`, its time does not count.
double seconds_before_main();

/// Returns the time of the first call of this function or of seconds_before_main().
std::chrono::steady_clock::time_point main_start();

}  // namespace sparsereel::app
