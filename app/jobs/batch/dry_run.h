// `batch --dry-run`: shows how many videos of a set are done, what is left by size, and the memory needed.
#pragma once

#include "app/jobs/batch/plan.h"
#include "app/jobs/report.h"

namespace sparsereel::app::sets {

/// `plan` holds the rows of this share; `rows` counts those of the whole set. Loads no weights and writes nothing. If a
/// row would fail, prints what is known, then throws Error (bad input).
void show_set(SetPlan& plan, const BatchOptions& options, const Share& share, int64_t rows, RunReport& report);

}  // namespace sparsereel::app::sets
