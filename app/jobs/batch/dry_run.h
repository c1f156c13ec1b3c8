// `batch --dry-run`: shows how many videos of a set are done, how many of each size are left, and the memory needed.
#pragma once

#include "app/jobs/batch/plan.h"
#include "app/jobs/report.h"

namespace sparsereel::app::sets {

/// Prints how many videos of the set are done, how many of each size are left, and the memory that each size needs.
/// Adds the same to `report`. `plan` holds the rows of this process's share of the set; `rows` is the number of rows in
/// the whole set. Loads no weights and writes no file. If a row would fail, prints what is known, then throws Error
/// (bad input).
void show_set(SetPlan& plan, const BatchOptions& options, const Share& share, int64_t rows, RunReport& report);

}  // namespace sparsereel::app::sets
