// `sparsereel bench pipeline`: whole videos with full, quantized and sparse attention side by side.
#pragma once

#include "app/commands/bench/pipeline_plan.h"
#include "app/job/report.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// Adds the options that `generate` has not; `options` must outlive the parsing.
void add_bench_pipeline_options(CLI::App& command, bench::PipelineOptions& options);

/// Measures and fills the report: `machine`, `settings`, `architecture`, `rows` (bench/stage_rows.h). The tables go to
/// --output, else to stdout. Throws Error for options that are out of range; what a single contender cannot do becomes
/// its row's note.
void bench_pipeline(const Settings& settings, const bench::PipelineOptions& options, RunReport& report);

}  // namespace sparsereel::app
