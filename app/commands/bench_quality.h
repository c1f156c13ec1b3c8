// `sparsereel bench quality`: how near videos with blocks left out come to those of full attention, and how fast.
#pragma once

#include "app/commands/bench/quality_plan.h"
#include "app/job/report.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// Adds the options that `generate` has not, or that are lists here; `options` must outlive the parsing.
void add_bench_quality_options(CLI::App& command, bench::QualityOptions& options);

/// Measures and fills the report: `machine`, `settings`, `architecture`, `full`, `rows` (bench/quality_rows.h). The
/// table goes to --output, else to stdout. Throws Error for options that are out of range; what a single combination
/// cannot do becomes its row's note.
void bench_quality(const Settings& settings, const bench::QualityOptions& options, RunReport& report);

}  // namespace sparsereel::app
