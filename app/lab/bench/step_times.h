// Takes the step times of another model, so that a table can show the quality of a small model with the speed of a
// large one.
#pragma once

#include <string>
#include <vector>

#include "app/lab/measure/table.h"

namespace sparsereel::app::bench {

/// Times of steps by the share of blocks that they compute.
struct ShareTimes {
  struct Point {
    double share, ms;
  };
  std::vector<Point> points;  // by share; empty if unknown
  int64_t layers = 0;

  /// Interpolates linearly between the points; constant beyond them.
  double ms(double share) const;
};

/// Step times from reports of `bench pipeline`.
struct StepTimes {
  struct Step {
    Row row;
    int64_t layers = 0;
    std::string file;
  };
  std::vector<Step> steps;
  std::vector<std::string> summaries;  // of each report, from run_summary()

  /// Fills step_ms and denoise_seconds, for the row and for full attention, with quartiles if steps have them. A
  /// computed step takes the time of the reported step with equal mode, selection, token order and weights, but no
  /// cache; if no report has that step, this adds a note. A row without computed_steps stays as it is. `run_steps` is
  /// the number of steps of the row's videos. With a bound on the error of blocks, by_share() gives the time for the
  /// row's kept_share. A step with every block takes the time of `quantized` (of `full` if that is missing), an exact
  /// step that of `full`. A reused step takes as long as one layer of a computed step.
  void fill(Row& row, int64_t run_steps) const;
  /// Returns the time of a step by its share of blocks, for rows with a bound on the error of blocks. How many blocks
  /// such a bound keeps depends on the picture, and random weights draw no picture. Therefore the result is
  /// interpolated between steps with a topk, or with every block, whose other settings equal those of `like`. `figure`
  /// is "ms" or a quartile.
  ShareTimes by_share(const Row& like, const char* figure = "ms") const;

 private:
  bool fill(Row& row, int64_t run_steps, const std::string& figure) const;
  const Step* find(const Row& like, const char* mode) const;
  const Step* find_every_block(const Row& like) const;
};

/// Reads reports of `bench pipeline`. Throws Error naming a file that is not such a report.
StepTimes read_step_times(const std::vector<std::string>& files);

}  // namespace sparsereel::app::bench
