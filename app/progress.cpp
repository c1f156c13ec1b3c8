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
  stage_steps_ = 0;
  show(name + " ...");
}

void Progress::step(int64_t done, int64_t total, double seconds) {
  stage_seconds_ += seconds;
  ++stage_steps_;
  const double share = static_cast<double>(done) / static_cast<double>(stage_steps_);
  show(progress_line(stage_, done, total, stage_seconds_ * share));
}

void Progress::set(const std::string& name, int64_t done, int64_t total, int64_t here, double seconds) {
  const double share = here > 0 ? static_cast<double>(done) / static_cast<double>(here) : 0;
  set_ = progress_line(name, done, total, seconds * share);
}

void Progress::show(const std::string& line) {
  clear();
  if (!shown_) return;
  if (!set_.empty()) std::fprintf(stderr, "%s\n", set_.c_str());
  two_lines_ = !set_.empty();
  std::fputs(line.c_str(), stderr);
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs(two_lines_ ? "\r\x1b[K\x1b[1A\x1b[K" : "\r\x1b[K", stderr);
  two_lines_ = false;
}

}  // namespace sparsereel::app
