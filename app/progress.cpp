// The progress bar; see progress.h.
#include "app/progress.h"

#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>

namespace sparsereel::app {

std::string progress_line(const std::string& stage, int64_t done, int64_t total, double seconds) {
  constexpr int64_t kWidth = 30;
  const int64_t filled = total > 0 ? done * kWidth / total : 0;
  std::string line = stage + " [" + std::string(static_cast<size_t>(filled), '#') +
                     std::string(static_cast<size_t>(kWidth - filled), '.') + "] " + std::to_string(done) + "/" +
                     std::to_string(total);
  if (done == 0 || seconds <= 0) return line;
  const double each = seconds / static_cast<double>(done);
  const auto left = static_cast<int64_t>(std::ceil(each * static_cast<double>(total - done)));
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "  %.2f s/it  ETA %ld:%02ld", each, static_cast<long>(left / 60),
                static_cast<long>(left % 60));
  return line + text.data();
}

Progress::Progress(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) == 1) {}

void Progress::stage(const std::string& name) {
  stage_ = name;
  stage_seconds_ = 0;
  if (shown_) std::fprintf(stderr, "\r\x1b[K%s ...", name.c_str());
}

void Progress::step(int64_t done, int64_t total, double seconds) {
  stage_seconds_ += seconds;
  if (shown_) std::fprintf(stderr, "\r\x1b[K%s", progress_line(stage_, done, total, stage_seconds_).c_str());
}

void Progress::clear() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace sparsereel::app
