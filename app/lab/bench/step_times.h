// Takes the step times of another model, so that a table can show the quality of a small model with the speed of a
// large one.
#pragma once

#include <string>
#include <vector>

#include "app/lab/measure/table.h"

namespace sparsereel::app::bench {

/// The time of a step as a function of the share of blocks that it computes.
struct ShareTimes {
  struct Point {
    double share, ms;
  };
  std::vector<Point> points;  // in ascending order of the share; empty if unknown
  int64_t layers = 0;

  /// Returns the time for this share, interpolated linearly between the points. Beyond the outer points it is constant.
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

  /// Fills step_ms and denoise_seconds, for the row and for full attention, with quartiles if the reports have them.
  /// `run_steps` is the number of steps of the row's videos. A computed step takes as long as the reported step that
  /// has no cache, the same mode, and 8-bit weights only if the row has them; in mode sparse it must also have the same
  /// selection and token order. If the row has a bound on the error of blocks, by_share() gives the time for its
  /// kept_share. A step with every block takes as long as a step of mode quantized (or of mode full, if there is none),
  /// and an exact step as long as a step of mode full. A reused step takes as long as one layer of a computed step. If
  /// no report has a needed step, adds a note to the row. A row without computed_steps stays as it is.
  void fill(Row& row, int64_t run_steps) const;
  /// Returns the time of a step by its share of blocks, for rows with a bound on the error of blocks. How many blocks
  /// are computed with such a bound depends on the picture, and a report of random weights has no picture. So the
  /// result is interpolated between steps that have the other settings of `like`: steps with a topk, and a step with
  /// every block. `figure` is "ms" or a quartile.
  ShareTimes by_share(const Row& like, const char* figure = "ms") const;

 private:
  bool fill(Row& row, int64_t run_steps, const std::string& figure) const;
  const Step* find(const Row& like, const char* mode) const;
  const Step* find_every_block(const Row& like) const;
};

/// Reads reports of `bench pipeline`. Throws Error naming a file that is not such a report.
StepTimes read_step_times(const std::vector<std::string>& files);

}  // namespace sparsereel::app::bench
