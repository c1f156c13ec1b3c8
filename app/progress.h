// A progress bar on stderr: stage, step, seconds a step, time left. Silent where stderr is no terminal.
#pragma once

#include <cstdint>
#include <string>

namespace sparsereel::app {

class Progress {
 public:
  /// `wanted` is false with --quiet.
  explicit Progress(bool wanted);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(const std::string& name);
  /// `seconds`: what the last step took; 0 where unknown.
  void step(int64_t done, int64_t total, double seconds);
  /// A bar of its own above: `done` of `total`, of which `here` took `seconds`; the others were done before.
  void set(const std::string& name, int64_t done, int64_t total, int64_t here, double seconds);
  /// Takes the bar off the screen.
  void clear();

 private:
  void show(const std::string& line);

  bool shown_;
  bool two_lines_ = false;  // are on the screen
  std::string set_;         // the upper one; empty: none
  std::string stage_;
  double stage_seconds_ = 0;
  int64_t stage_steps_ = 0;  // that took them: a resumed run does not begin at the first
};

/// One line of the bar, e.g. "denoise [#####.....] 12/25  1.32 s/it  ETA 0:17"; `seconds` is the time of the steps done
/// so far.
std::string progress_line(const std::string& stage, int64_t done, int64_t total, double seconds);

}  // namespace sparsereel::app
