// The commands of `sparsereel bench`, and what they draw. What they share is in bench/.
#pragma once

#include "app/commands/commands.h"
#include "app/lab/measure/chart.h"

namespace sparsereel::app {

/// Add the commands as those of commands.h. They fill the report: `machine`, `settings`, `rows`, and for whole videos
/// `architecture`, the config of each component. The table goes to --output, else to stdout. They throw Error for
/// options that are out of range and for models or shapes that cannot be used. What a single contender cannot do
/// becomes its row's note.
void add_bench_attention(CLI::App& above, CommandLine& line);  // full, quantized and sparse attention side by side
void add_bench_pipeline(CLI::App& above, CommandLine& line);   // whole videos with each of them, stage by stage
void add_bench_quality(CLI::App& above, CommandLine& line);    // how near videos come to full attention's, how fast
void add_bench_plot(CLI::App& above, CommandLine& line);       // draws JSON reports of a benchmark

/// "some-model, bf16, NVIDIA H200": the caption of a report's charts.
std::string caption_of(const nlohmann::json& report);

/// What of a report is drawn as bars: the steps of `bench pipeline` (or a rival's report), or the rows of `bench
/// attention` where none is sparse. Rows without a time are left out. Throws Error naming `file` when it holds none of
/// these.
PlotData plot_of(const nlohmann::json& report, const std::string& file);

/// The rows of `bench quality`: PSNR against seconds of denoising, the points of each method, presets by their names,
/// and the frontier. Throws likewise.
CurvesData curves_of(const nlohmann::json& report, const std::string& file);

/// The sparse and quantized rows of `bench attention`: relative L1 against the time of a call, a curve a method, and a
/// workload where there are several. Throws likewise.
CurvesData error_curves_of(const nlohmann::json& report, const std::string& file);

}  // namespace sparsereel::app
