// The system counts a process's start in ticks since the machine's.
#include "app/clock.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace sparsereel::app {
namespace {

/// Seconds from the machine's start to the process's; `now` where /proc does not say.
double started_at(double now) {
  constexpr int kStartTime = 22;  // the field, see proc(5)
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');  // the second field may hold spaces
  if (name_end == std::string::npos) return now;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 2; i < kStartTime && fields >> field; ++i) continue;
  return fields ? std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK)) : now;
}

struct Start {
  std::chrono::steady_clock::time_point main = std::chrono::steady_clock::now();
  double before = 0;

  Start() {
    timespec time{};
    clock_gettime(CLOCK_BOOTTIME, &time);
    constexpr double kNano = 1e-9;
    const double now = static_cast<double>(time.tv_sec) + kNano * static_cast<double>(time.tv_nsec);
    before = std::max(0.0, now - started_at(now));
  }
};

const Start& start() {
  static const Start at_first_call;
  return at_first_call;
}

}  // namespace

double seconds_before_main() {
  return start().before;
}

std::chrono::steady_clock::time_point main_start() {
  return start().main;
}

}  // namespace sparsereel::app
