// `sparsereel bench plot`: draws the JSON report of a benchmark.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "app/job/report.h"
#include "app/media/plot.h"

namespace sparsereel::app {

/// What of a report is drawn as bars: the steps of `bench pipeline` (or a rival's report), or the rows of `bench
/// attention` where none is sparse. Rows without a time are left out. Throws Error naming `file` when it holds none of
/// these.
PlotData plot_of(const nlohmann::json& report, const std::string& file);

/// The rows of `bench quality`: PSNR against the time of a step, a curve a method. Throws likewise.
CurvesData curves_of(const nlohmann::json& report, const std::string& file);

/// The sparse and quantized rows of `bench attention`: relative L1 against the time of a call, a curve a method, and a
/// workload where there are several. Throws likewise.
CurvesData error_curves_of(const nlohmann::json& report, const std::string& file);

void bench_plot(const std::filesystem::path& file, const std::filesystem::path& output, RunReport& report);

}  // namespace sparsereel::app
