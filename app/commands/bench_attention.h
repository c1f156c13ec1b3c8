// `sparsereel bench attention`: full, quantized and sparse attention side by side on one device.
#pragma once

#include "app/commands/bench/options.h"
#include "app/job/report.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// Adds the command's options; `options` must outlive the parsing.
void add_bench_attention_options(CLI::App& command, bench::AttentionOptions& options);

/// Measures and fills the report: `machine`, `settings`, `rows` (bench/table.h). The table goes to --output, else to
/// stdout. Throws Error for options that are out of range and for shapes that do not fit into memory; what a single
/// contender cannot do becomes its row's note.
void bench_attention(const bench::AttentionOptions& options, RunReport& report);

}  // namespace sparsereel::app
