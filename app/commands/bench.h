// The commands of `sparsereel bench`, and the data of the charts that `bench plot` draws. The code that they share is
// in app/lab/bench/.
#pragma once

#include "app/commands/commands.h"
#include "app/lab/measure/chart.h"

namespace sparsereel::app {

/// Each function adds one command, as in commands.h. The commands fill the keys `machine`, `settings` and `rows` of the
/// report and, for whole videos, `architecture`, which holds the config of each component. The table goes to --output,
/// or else to stdout. The commands throw Error for options that are out of range and for models or shapes that cannot
/// be used. If one contender cannot run, the note of its row gives the reason.
void add_bench_attention(CLI::App& above, CommandLine& line);  // full, quantized and sparse attention side by side
void add_bench_pipeline(CLI::App& above, CommandLine& line);   // the stages of whole videos, in each of these modes
void add_bench_quality(CLI::App& above, CommandLine& line);    // fidelity of videos to full attention, and speed
void add_bench_plot(CLI::App& above, CommandLine& line);       // charts from the JSON reports of a benchmark

/// Returns the caption for charts of a report: "some-model, bf16, NVIDIA H200".
std::string caption_of(const nlohmann::json& report);

/// Returns the bar chart of a report. In a report of `bench pipeline` (or of another program), a bar shows the time of
/// a whole step of one contender; other stages are left out. In a report of `bench attention`, a bar shows one row.
/// Rows without a time are left out. Throws Error naming `file` if no row is left.
PlotData plot_of(const nlohmann::json& report, const std::string& file);

/// Returns the chart of a report of `bench quality`: PSNR in dB against seconds of denoising. It has the points of each
/// method, and the frontier, a line through the points that no other point beats. Throws Error naming `file` if no row
/// has both figures.
CurvesData curves_of(const nlohmann::json& report, const std::string& file);

/// Returns the chart of a report of `bench attention`: the relative L1 error of the sparse and quantized rows against
/// the milliseconds of a call. It has a curve for each method and workload. Throws Error naming `file` if no sparse row
/// has both figures.
CurvesData error_curves_of(const nlohmann::json& report, const std::string& file);

}  // namespace sparsereel::app
