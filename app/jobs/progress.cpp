// Draws on stderr: a bar that is redrawn in place on a terminal, else lines.
#include "app/jobs/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "app/clock.h"
#include "app/terminal.h"

namespace sparsereel::app {
namespace {

bool understands_escapes() {
  const char* terminal = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): nothing here sets it
  return isatty(STDERR_FILENO) == 1 && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

/// Asks the terminal each time, because windows change.
int64_t terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/// Returns "0:17" or "1:02:05".
std::string clock_text(int64_t seconds) {
  std::array<char, 64> text{};
  const auto part = [](int64_t value) { return static_cast<long>(value); };
  if (seconds < 3600)
    std::snprintf(text.data(), text.size(), "%ld:%02ld", part(seconds / 60), part(seconds % 60));
  else
    std::snprintf(text.data(), text.size(), "%ld:%02ld:%02ld", part(seconds / 3600), part(seconds / 60 % 60),
                  part(seconds % 60));
  return text.data();
}

std::string cut(std::string line, int64_t columns) {
  line.resize(std::min(line.size(), static_cast<size_t>(std::max<int64_t>(columns - 1, 1))));
  return line;
}

}  // namespace

std::string progress_text(int64_t done, int64_t total, double seconds) {
  const std::string count = std::to_string(done) + "/" + std::to_string(total);
  if (done == 0 || seconds <= 0) return count;
  const double each = seconds / static_cast<double>(done);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "  %.2f s/it  ETA ", each);
  return count + text.data() + clock_text(static_cast<int64_t>(std::ceil(each * static_cast<double>(total - done))));
}

std::string progress_line(const std::string& stage, int64_t done, int64_t total, double seconds, int64_t columns) {
  constexpr int64_t kWidest = 30, kNarrowest = 4;
  const std::string text = progress_text(done, total, seconds);
  const int64_t room = columns - 1 - static_cast<int64_t>(stage.size() + text.size() + std::string(" [] ").size());
  if (room < kNarrowest) return cut(stage + " " + text, columns);
  const int64_t width = std::min(room, kWidest), filled = total > 0 ? done * width / total : 0;
  std::string line = stage + " [";
  line.append(static_cast<size_t>(filled), '#').append(static_cast<size_t>(width - filled), '.');
  return line.append("] ").append(text);
}

Progress::Progress(bool wanted, double between_lines)
    : form_(!wanted                 ? Form::nothing
            : understands_escapes() ? Form::bar
                                    : Form::lines),
      between_lines_(between_lines) {}

void Progress::stage(const std::string& name) {
  stage_ = one_line(name);
  stage_seconds_ = 0;
  stage_steps_ = 0;
  step_start_ = std::chrono::steady_clock::now();
  show({.name = stage_ + " ..."});
}

void Progress::step(int64_t done, int64_t total, double seconds) {
  stage_seconds_ += seconds;
  ++stage_steps_;
  step_start_ = std::chrono::steady_clock::now();
  const double share = static_cast<double>(done) / static_cast<double>(stage_steps_);
  show({.name = stage_, .done = done, .total = total, .seconds = stage_seconds_ * share});
}

void Progress::within(int64_t step, int64_t steps) {
  if (!line_is_due()) return;
  show_line(set_text() + stage_ + ": step " + std::to_string(step) + " of " + std::to_string(steps) + ", " +
            std::to_string(std::lround(seconds_since(step_start_))) + " s so far");
}

void Progress::set(const std::string& name, int64_t done, int64_t total, int64_t here, double seconds) {
  const double share = here > 0 ? static_cast<double>(done) / static_cast<double>(here) : 0;
  const bool news = here > 0 && done > set_.done;
  set_ = {.name = name, .done = done, .total = total, .seconds = seconds * share};
  if (form_ == Form::lines && news) show_line(name + " " + progress_text(done, total, set_.seconds));
}

bool Progress::line_is_due() const {
  return form_ == Form::lines && seconds_since(last_line_) >= between_lines_;
}

/// Returns "set 3/9, "; empty without a set.
std::string Progress::set_text() const {
  if (set_.name.empty()) return {};
  return set_.name + " " + std::to_string(set_.done) + "/" + std::to_string(set_.total) + ", ";
}

void Progress::show(const Count& count) {
  if (line_is_due()) {
    std::string line = set_text() + count.name;
    if (count.total > 0) line.append(" ").append(progress_text(count.done, count.total, count.seconds));
    show_line(line);
  }
  if (form_ != Form::bar) return;
  clear();
  const int64_t columns = terminal_columns();
  const auto bar = [columns](const Count& each) {
    if (each.total == 0) return cut(each.name, columns);
    return progress_line(each.name, each.done, each.total, each.seconds, columns);
  };
  two_lines_ = !set_.name.empty();
  if (two_lines_) std::fprintf(stderr, "%s\n", bar(set_).c_str());
  std::fputs(bar(count).c_str(), stderr);
}

void Progress::show_line(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  last_line_ = std::chrono::steady_clock::now();
}

void Progress::note(const std::string& line) {
  clear();
  if (form_ != Form::nothing) std::fprintf(stderr, "%s\n", one_line(line).c_str());
}

void Progress::clear() {
  if (form_ != Form::bar) return;
  std::fputs(two_lines_ ? "\r\x1b[K\x1b[1A\x1b[K" : "\r\x1b[K", stderr);
  two_lines_ = false;
}

}  // namespace sparsereel::app
