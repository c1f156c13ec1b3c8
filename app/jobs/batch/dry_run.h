// `batch --dry-run`: how many videos of a set are done, what is left by size, and what memory that needs.
#pragma once

#include "app/jobs/batch/plan.h"
#include "app/jobs/report.h"

namespace sparsereel::app::sets {

/// `plan`: of this share; `rows`: of the whole set. Loads no weights and writes nothing. Throws Error (bad input) where
/// a row would fail, once what is known was printed.
void show_set(SetPlan& plan, const BatchOptions& options, const Share& share, int64_t rows, RunReport& report);

}  // namespace sparsereel::app::sets
