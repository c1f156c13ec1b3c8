// Keeps the program's start, which is known before the libraries are loaded.
#include "app/clock.h"

#include <algorithm>
#include <ctime>

namespace sparsereel::app {
namespace {

constinit int64_t program_start = 0;  // 0 until it is set

struct Start {
  std::chrono::steady_clock::time_point main = std::chrono::steady_clock::now();
  double before = 0;

  Start() {
    constexpr double kNano = 1e-9;
    if (program_start > 0)
      before = kNano * static_cast<double>(std::max<int64_t>(0, boot_nanoseconds() - program_start));
  }
};

const Start& start() {
  static const Start at_first_call;
  return at_first_call;
}

}  // namespace

int64_t boot_nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  constexpr int64_t kSecond = 1'000'000'000;
  return time.tv_sec * kSecond + time.tv_nsec;
}

void set_program_start(int64_t boot_nanoseconds) {
  program_start = boot_nanoseconds;
}

double seconds_before_main() {
  return start().before;
}

std::chrono::steady_clock::time_point main_start() {
  return start().main;
}

}  // namespace sparsereel::app
