// `sparsereel bench`: measures attention, pipelines and quality on this machine, and draws what was measured. The parts
// are in bench/.
#pragma once

#include "app/commands/bench/options.h"
#include "app/commands/bench/pipeline_plan.h"
#include "app/commands/bench/quality_plan.h"
#include "app/job/report.h"
#include "app/media/plot.h"

namespace sparsereel::app {

/// Measure and fill the report: `machine`, `settings`, `rows`, and of whole videos `architecture`, the config of each
/// component. The table goes to --output, else to stdout. Throw Error for options that are out of range and for models
/// or shapes that cannot be used; what a single contender cannot do becomes its row's note.
///
/// Full, quantized and sparse attention side by side.
void bench_attention(const bench::AttentionOptions& options, RunReport& report);
/// Whole videos with each of them, stage by stage.
void bench_pipeline(const Settings& settings, const bench::PipelineOptions& options, RunReport& report);
/// How near videos with blocks or steps left out come to those of full attention, and how fast: `full` has what full
/// attention took. A chart, too, and pictures of the first prompt's videos, where these are asked for.
void bench_quality(const Settings& settings, const bench::QualityOptions& options, RunReport& report);
/// Draws the JSON report of a benchmark.
void bench_plot(const std::filesystem::path& file, const std::filesystem::path& output, RunReport& report);

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
