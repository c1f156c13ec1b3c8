// What the steps of another model take, so that the quality of a small one and the speed of a large one stand in one
// table.
#pragma once

#include <string>
#include <vector>

#include "app/lab/measure/table.h"

namespace sparsereel::app::bench {

/// What steps take by the share of the blocks that they compute.
struct ShareTimes {
  struct Point {
    double share, ms;
  };
  std::vector<Point> points;  // by share; empty: not known
  int64_t layers = 0;

  /// Along straight lines between the points; beyond them as at the last.
  double ms(double share) const;
};

/// Of reports of `bench pipeline`.
struct StepTimes {
  struct Step {
    Row row;
    int64_t layers = 0;
    std::string file;
  };
  std::vector<Step> steps;
  std::vector<std::string> summaries;  // of each report, as run_summary() says it

  /// Fills step_ms, denoise_seconds and those of full attention, with their quartiles where steps have some, or a note
  /// where no report has such a step. Of a row with computed_steps: a computed step takes what the step of the same
  /// mode, selection, token order and weights took without a cache, or with a bound on a block's error what by_share()
  /// says of the row's kept_share; one that keeps every block what `quantized` took (`full` where it was not measured);
  /// a reused one its share of one layer. `run_steps`: of the row's videos.
  void fill(Row& row, int64_t run_steps) const;
  /// How many blocks a bound on a block's error leaves depends on what is drawn, and random weights draw nothing. So it
  /// takes what steps with a topk took, and those with every block, that are alike otherwise. `figure`: their "ms", or
  /// a quartile.
  ShareTimes by_share(const Row& like, const char* figure = "ms") const;

 private:
  bool fill(Row& row, int64_t run_steps, const std::string& figure) const;
  const Step* find(const Row& like, const char* mode) const;
  const Step* find_every_block(const Row& like) const;
};

/// Throws Error naming the file that is no such report.
StepTimes read_step_times(const std::vector<std::string>& files);

}  // namespace sparsereel::app::bench
