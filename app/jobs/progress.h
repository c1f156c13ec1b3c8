// Shows the progress of a run on stderr: a bar on a terminal, else a line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "models/request/memory_plan.h"
#include "models/request/run.h"

namespace sparsereel::app {

class Progress {
 public:
  /// `wanted` is false with --quiet. `between_lines` is the number of seconds between lines if stderr is not a
  /// terminal.
  explicit Progress(bool wanted, double between_lines = 30);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(const std::string& name);
  /// Shows a finished step. `seconds` is the duration of the last step; 0 if unknown.
  void step(int64_t done, int64_t total, double seconds);
  /// Shows progress inside step `step` (from 1) of `steps`. Call it often, because a step may take longer than the time
  /// between two lines.
  void within(int64_t step, int64_t steps);
  /// Shows the progress of a set: in a second bar above, or in a line for each finished item if stderr is not a
  /// terminal. `done` of `total` items are finished. This run finished `here` of them in `seconds`; earlier runs
  /// finished the rest.
  void set(const std::string& name, int64_t done, int64_t total, int64_t here, double seconds);
  /// Prints a line that stays on the screen.
  void note(const std::string& line);
  /// Removes the bar from the screen.
  void clear();

 private:
  enum class Form { nothing, lines, bar };
  struct Count {
    std::string name;
    int64_t done = 0, total = 0;
    double seconds = 0;  // seconds of the finished items
  };

  bool line_is_due() const;
  std::string set_text() const;
  void show(const Count& count);
  void show_line(const std::string& line);

  Form form_;
  double between_lines_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
  bool two_lines_ = false;  // true if two lines are on the screen
  Count set_;               // count of the upper line; without a name there is no upper line
  std::string stage_;
  std::chrono::steady_clock::time_point step_start_ = std::chrono::steady_clock::now();
  double stage_seconds_ = 0;
  int64_t stage_steps_ = 0;  // steps that stage_seconds_ covers; a resumed run skips the first ones
};

/// Shows the stages, the steps, and the encoded and decoded pieces of a run.
class ShownRun : public models::RunObserver {
 public:
  explicit ShownRun(Progress& progress) : progress_(progress) {}

  void stage(const std::string& name) override { progress_.stage(name); }
  void memory(const models::MemoryPlan& plan) override { progress_.note("memory: " + models::sentence(plan)); }
  void step(const models::StepDone& step) override { progress_.step(step.step, step.steps, step.seconds); }
  void within_step(const models::WithinStep& step) override { progress_.within(step.step + 1, step.steps); }
  void encoded(const models::PieceProgress& pieces) override { progress_.step(pieces.done, pieces.total, 0); }
  void decoded(const models::PieceProgress& pieces) override { progress_.step(pieces.done, pieces.total, 0); }

 private:
  Progress& progress_;
};

/// Returns "12/25  1.32 s/it  ETA 0:18"; `seconds` is the time of the steps done so far.
std::string progress_text(int64_t done, int64_t total, double seconds);

/// Returns a line shorter than `columns`, such as "denoise [####......] 12/25  1.32 s/it  ETA 0:18".
std::string progress_line(const std::string& stage, int64_t done, int64_t total, double seconds, int64_t columns = 80);

}  // namespace sparsereel::app
