// `sparsereel bench plot`: draws the JSON report of a benchmark.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "app/media/plot.h"
#include "app/report.h"

namespace sparsereel::app {

/// What of a report is drawn: the steps of `bench pipeline` (or a rival's report), or the rows of `bench attention`.
/// Rows without a time are left out. Throws Error naming `file` when it holds none of these.
PlotData plot_of(const nlohmann::json& report, const std::string& file);

/// The rows of `bench quality`: PSNR against the time of a step, a curve a method. Throws likewise.
CurvesData curves_of(const nlohmann::json& report, const std::string& file);

void bench_plot(const std::filesystem::path& file, const std::filesystem::path& output, RunReport& report);

}  // namespace sparsereel::app
