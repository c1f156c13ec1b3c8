// How far a run is, on stderr: a bar on a terminal, else a line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "models/request/run.h"

namespace sparsereel::app {

class Progress {
 public:
  /// `wanted` is false with --quiet. `between_lines`: seconds, where there is no terminal.
  explicit Progress(bool wanted, double between_lines = 30);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(const std::string& name);
  /// `seconds`: what the last step took; 0 where unknown.
  void step(int64_t done, int64_t total, double seconds);
  /// Called often inside step `step` of `steps`, from 1: a step may take longer than the time between two lines.
  void within(int64_t step, int64_t steps);
  /// A bar of its own above, and a line for each that is done: `done` of `total`, of which `here` took `seconds`; the
  /// others were done before.
  void set(const std::string& name, int64_t done, int64_t total, int64_t here, double seconds);
  /// Takes the bar off the screen.
  void clear();

 private:
  enum class Form { nothing, lines, bar };
  struct Count {
    std::string name;
    int64_t done = 0, total = 0;
    double seconds = 0;  // of those that are done
  };

  bool line_is_due() const;
  std::string set_text() const;
  void show(const Count& count);
  void show_line(const std::string& line);

  Form form_;
  double between_lines_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
  bool two_lines_ = false;  // are on the screen
  Count set_;               // the upper one; no name: none
  std::string stage_;
  std::chrono::steady_clock::time_point step_start_ = std::chrono::steady_clock::now();
  double stage_seconds_ = 0;
  int64_t stage_steps_ = 0;  // that took them: a resumed run does not begin at the first
};

/// Shows stages, steps, and encoded and decoded pieces of a run.
class ShownRun : public models::RunObserver {
 public:
  explicit ShownRun(Progress& progress) : progress_(progress) {}

  void stage(const std::string& name) override { progress_.stage(name); }
  void step(const models::StepDone& step) override { progress_.step(step.step, step.steps, step.seconds); }
  void within_step(const models::WithinStep& step) override { progress_.within(step.step + 1, step.steps); }
  void encoded(const models::Pieces& pieces) override { progress_.step(pieces.done, pieces.total, 0); }
  void decoded(const models::Pieces& pieces) override { progress_.step(pieces.done, pieces.total, 0); }

 private:
  Progress& progress_;
};

/// "12/25  1.32 s/it  ETA 0:17"; `seconds` is the time of the steps done so far.
std::string progress_text(int64_t done, int64_t total, double seconds);

/// One line of the bar, e.g. "denoise [#####.....] 12/25  1.32 s/it  ETA 0:17", shorter than `columns`.
std::string progress_line(const std::string& stage, int64_t done, int64_t total, double seconds, int64_t columns = 80);

}  // namespace sparsereel::app
