// `sparsereel bench plot`: turns the rows of reports into bars and points.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands/bench.h"
#include "app/counted.h"
#include "app/lab/bench/comparison.h"
#include "app/lab/bench/rows.h"
#include "app/options/option_group.h"
#include "attention/attention.h"
#include "hilbert/error.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::app {
namespace {

constexpr const char* kDrawableReports =
    "give the --report (or --json) of 'sparsereel bench pipeline', 'bench attention' or 'bench quality'";

using Json = nlohmann::json;

PlotRow plot_row(const Json& row, bool decibels) {
  PlotRow result;
  result.name = bench::row_name(row);
  result.total = *number_of(row, "ms");
  result.speedup = number_of(row, "speedup");
  result.quality = number_of(row, decibels ? "psnr" : "rel_l1");
  const auto matmul = number_of(row, "matmul_ms"), attention = number_of(row, "attention_ms");
  const auto rest = number_of(row, "rest_ms");
  if (matmul && attention && rest) result.parts = {*matmul, *attention, *rest};
  return result;
}

}  // namespace

std::string caption_of(const Json& report) {
  const Json settings = report.value("settings", Json::object()), machine = report.value("machine", Json::object());
  std::string title = text_of(settings, "model");
  for (const std::string& more : {text_of(settings, "dtype"), text_of(machine, "name")})
    if (!more.empty()) title.append(title.empty() ? "" : ", ").append(more);
  return title;
}

namespace {

Rows rows_of(const Json& report, const std::string& file) {
  if (!report.is_object() || !report.contains("rows") || !report["rows"].is_array())
    throw bad_file(file, "the key rows is missing or not an array", kDrawableReports);
  Rows rows;
  for (const Json& row : report["rows"])
    if (row.is_object()) rows.push_back(row);
  return rows;
}

bool is_full(const Json& row) {
  return text_of(row, "mode") == attention::name(attention::Mode::full);
}

bool is_sparse(const Json& row) {
  return text_of(row, "mode") == attention::name(attention::Mode::sparse);
}

/// Returns a point's label, which says how many blocks are computed: the preset, "0.3" for topk, "cdf 0.9", "block
/// error 0.008", or the profile's name. Rows that are not sparse are labeled by their cache.
std::string label_of(const Json& row) {
  if (const std::string preset = text_of(row, "preset"); !preset.empty()) return preset;
  if (!is_sparse(row)) return text_of(row, "cache");
  const std::string value = bench::value_name(row);
  return value.empty() ? std::filesystem::path(text_of(row, "profile")).stem().string() : value;
}

/// Returns the row's values of the settings in which the drawn rows differ, apart from the method: ", cell 16,
/// token_order native".
std::string settings_of(const Json& row, const Rows& drawn) {
  std::string text;
  for (const char* key :
       {"cell", "arithmetic", "selection_rows", "similarity", "dense_steps", "token_order", "cache", "weights"}) {
    const Json value = row.value(key, Json());
    const bool same =
        std::all_of(drawn.begin(), drawn.end(), [&](const Json& other) { return other.value(key, Json()) == value; });
    if (same || value.is_null()) continue;
    text.append(", ").append(key).append(" ").append(value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

/// Returns the name of the row's curve: "presets", a mode, or for sparse attention "dropped mean, select error"
/// followed by settings_of().
std::string method_of(const Json& row, const Rows& drawn) {
  if (!text_of(row, "preset").empty()) return "presets";
  if (!is_full(row) && !is_sparse(row)) return text_of(row, "mode");
  if (is_full(row))
    return text_of(row, "cache").empty() ? "full attention, weights reduced" : "full attention with a cache";
  return "dropped " + text_of(row, "dropped") + ", select " + text_of(row, "select") + settings_of(row, drawn);
}

/// Returns true if the row has an error to draw against its time.
bool has_error(const Json& row) {
  return !row.contains("stage") && number_of(row, "ms") && number_of(row, "rel_l1").value_or(0) > 0;
}

/// Returns the sparse and quantized rows of `bench attention`, or none if no row is sparse. Rows of full attention are
/// not among them: their only error is the rounding of the result, so the chart only marks their time.
Rows rows_with_errors(const Json& report, const std::string& file) {
  Rows drawn;
  bool sparse = false;
  for (const Json& row : rows_of(report, file)) {
    if (!has_error(row) || is_full(row)) continue;
    drawn.push_back(row);
    sparse = sparse || is_sparse(row);
  }
  return sparse ? drawn : Rows{};
}

/// Returns the title of a chart of `bench attention`, such as "[1,24,44776,128], bf16, NVIDIA H200".
std::string attention_title(const Json& report, const Rows& drawn) {
  std::string title = text_of(drawn.front(), "workload");
  const Json shape = drawn.front().value("shape", Json());
  title.append(title.empty() ? "" : " ").append(shape.dump()).append(", ").append(text_of(drawn.front(), "dtype"));
  return title + ", " + text_of(report.value("machine", Json::object()), "name");
}

/// Returns the workload's name, or else its shape: "[1,24,44776,128]".
std::string workload_of(const Json& row) {
  const std::string name = text_of(row, "workload");
  return name.empty() ? row.value("shape", Json()).dump() : name;
}

/// Returns the name of the row's curve: the method, and the workload if the rows have several.
std::string error_curve_of(const Json& row, const Rows& drawn) {
  const std::string workload = workload_of(row);
  const bool several =
      std::any_of(drawn.begin(), drawn.end(), [&](const Json& other) { return workload_of(other) != workload; });
  const std::string mode = text_of(row, "mode");
  return (several ? workload + ": " : "") + (is_sparse(row) ? method_of(row, drawn) : mode + settings_of(row, drawn));
}

/// Groups the rows' points (`x`, `y`) into curves by `name`.
std::vector<Curve> curves(const Rows& drawn, const char* x, const char* y,
                          std::string (*name)(const Json& row, const Rows& drawn)) {
  std::vector<Curve> all;
  for (const Json& row : drawn) {
    const std::string method = name(row, drawn);
    auto found = std::ranges::find(all, method, &Curve::name);
    if (found == all.end()) found = all.insert(all.end(), {.name = method, .points = {}});
    found->points.push_back({.label = label_of(row), .x = *number_of(row, x), .y = *number_of(row, y)});
  }
  return all;
}

/// Returns the milliseconds of the fastest full attention, or nothing if rows differ in workload or token order.
std::optional<double> full_ms(const Rows& rows, const Json& drawn) {
  std::optional<double> fastest;
  for (const Json& row : rows) {
    if (workload_of(row) != workload_of(drawn) || text_of(row, "token_order") != text_of(drawn, "token_order"))
      return {};
    if (const auto ms = number_of(row, "ms"); is_full(row) && ms) fastest = std::min(fastest.value_or(*ms), *ms);
  }
  return fastest;
}

/// Returns the rows with a time and a PSNR. Rows of older reports have no names, and milliseconds per step in place of
/// seconds; this function adds what they lack.
Rows rows_with_seconds(const Json& report, const std::string& file) {
  const double steps = number_of(report.value("settings", Json::object()), "steps").value_or(0);
  Rows drawn;
  for (Json row : rows_of(report, file)) {
    if (!row.contains("name")) row["name"] = bench::row_name(row);
    for (const std::string full : {"", "full_"})
      if (const auto ms = number_of(row, full + "step_ms"); ms && !row.contains(full + "denoise_seconds"))
        row[full + "denoise_seconds"] = *ms * steps / 1000;
    if (number_of(row, "denoise_seconds") && number_of(row, "psnr")) drawn.push_back(std::move(row));
  }
  if (drawn.empty()) throw bad_file(file, "holds no row with a time and a PSNR to draw", kDrawableReports);
  bench::mark_beaten(drawn);
  return drawn;
}

/// Returns the points of the rows that no other row beats, fastest first.
std::vector<Curve::Point> frontier_of(const Rows& drawn) {
  std::vector<Curve::Point> points;
  for (const Json& row : drawn)
    if (row["beaten_by"].is_null()) points.push_back({.label = {}, .x = row["denoise_seconds"], .y = row["psnr"]});
  std::ranges::sort(points, {}, &Curve::Point::x);
  return points;
}

bool is_quality_report(const Json& report, const std::string& file) {
  const Rows rows = rows_of(report, file);
  return !rows.empty() && rows.front().contains("step_ms");
}

}  // namespace

CurvesData curves_of(const Json& report, const std::string& file) {
  const Rows drawn = rows_with_seconds(report, file);
  CurvesData data = {.title = caption_of(report),
                     .x = "seconds of denoising",
                     .y = "PSNR dB against full attention",
                     .logarithmic = false,
                     .curves = curves(drawn, "denoise_seconds", "psnr", method_of),
                     .joined = false,
                     .frontier = frontier_of(drawn),
                     .mark = number_of(drawn.front(), "full_denoise_seconds"),
                     .mark_name = "full"};
  for (const Json& times : report.value("settings", Json::object()).value("times", Json::array()))
    data.title += "; times of " + times.get<std::string>();
  return data;
}

CurvesData error_curves_of(const Json& report, const std::string& file) {
  const Rows drawn = rows_with_errors(report, file);
  if (drawn.empty()) throw bad_file(file, "holds no sparse row with a time and an error to draw", kDrawableReports);
  CurvesData data = {.title = attention_title(report, drawn),
                     .x = "ms a call",
                     .y = "relative L1 against exact attention",
                     .logarithmic = true,
                     .curves = curves(drawn, "ms", "rel_l1", error_curve_of),
                     .mark = full_ms(rows_of(report, file), drawn.front()),
                     .mark_name = "full"};
  for (Curve& curve : data.curves) std::ranges::sort(curve.points, {}, &Curve::Point::x);
  return data;
}

PlotData plot_of(const Json& report, const std::string& file) {
  Rows drawn;
  bool decibels = false, steps = false;
  for (const Json& row : rows_of(report, file)) {
    if (!number_of(row, "ms")) continue;
    if (row.contains("stage") && text_of(row, "stage") != bench::kStepStage) continue;
    drawn.push_back(row);
    steps = steps || row.contains("stage");
    decibels = decibels || number_of(row, "psnr").has_value();
  }
  if (drawn.empty()) throw bad_file(file, "holds no row with a time to draw", kDrawableReports);
  PlotData data = {.title = caption_of(report),
                   .unit = steps ? "ms a step" : "ms a call",
                   .quality = decibels ? "PSNR dB against full attention" : "relative L1 (less is better)",
                   .parts = {},
                   .rows = {}};
  for (const Json& row : drawn) {
    data.rows.push_back(plot_row(row, decibels));
    if (!data.rows.back().parts.empty()) data.parts = {"matmul", "attention", "rest"};
  }
  return data;
}

namespace {

enum class Drawn { bars, errors, quality };

Drawn kind_of(const Json& report, const std::string& file) {
  if (is_quality_report(report, file)) return Drawn::quality;
  return rows_with_errors(report, file).empty() ? Drawn::bars : Drawn::errors;
}

/// If there are several reports, puts the name of the report in front of each name.
template <typename Named>
void add_source(const std::filesystem::path& file, size_t files, std::vector<Named>& all) {
  for (Named& each : all)
    if (files > 1) each.name = file.stem().string() + ": " + each.name;
}

void bench_plot(const std::vector<std::string>& files, const std::filesystem::path& output, RunReport& report) {
  check_chart("--output", output);
  std::optional<Drawn> kind;
  std::vector<CurvesData> curves;
  PlotData bars;
  size_t count = 0;
  for (const std::string& file : files) {
    const Json content = models::read_json(file, kDrawableReports);
    const Drawn own = kind_of(content, file);
    if (kind.value_or(own) != own)
      throw bad_file(file, "is a report of another command than " + files.front(),
                     "draw the reports of each command in a chart of their own");
    kind = own;
    if (own == Drawn::bars) {
      PlotData more = plot_of(content, file);
      add_source(file, files.size(), more.rows);
      if (!bars.title.empty() && bars.title != more.title) more.title = bars.title + "; " + more.title;
      more.rows.insert(more.rows.begin(), bars.rows.begin(), bars.rows.end());
      if (more.parts.empty()) more.parts = bars.parts;
      bars = std::move(more);
      continue;
    }
    curves.push_back(own == Drawn::quality ? curves_of(content, file) : error_curves_of(content, file));
    add_source(file, files.size(), curves.back().curves);
    if (files.size() > 1)
      curves.back().mark_name = std::filesystem::path(file).stem().string() + ": " + curves.back().mark_name;
    count += curves.back().curves.size();
  }
  if (kind == Drawn::bars)
    write_plot(output, bars);
  else
    write_curves(output, curves);
  report.last_line =
      output.string() + ": " +
      (kind == Drawn::bars ? counted(std::ssize(bars.rows), "bar") : counted(static_cast<int64_t>(count), "curve"));
}

}  // namespace

void add_bench_plot(CLI::App& above, CommandLine& line) {
  struct Files {
    std::vector<std::string> reports;
    std::string output = "bench.png";
  };
  CLI::App* command = above.add_subcommand("plot", "Draws the JSON reports of a benchmark (needs gnuplot)");
  command->footer("sparsereel bench plot pipeline.json -o pipeline.png");
  const auto files = std::make_shared<Files>();
  command
      ->add_option(
          "REPORT", files->reports,
          packed({.help = "reports of bench pipeline, attention or quality; several of one kind",
                  .manual = R"(Names one or more JSON reports, which bench writes with --report. If there are several,
                      all must be of the same command; one chart then shows the rows of all, to compare models or
                      machines.)",
                  .example = "sparsereel bench plot before.json after.json -o both.png"}))
      ->type_name("FILE")
      ->required();
  OptionGroup(*command, kOtherOptions)
      .add("-o,--output", files->output,
           {.help = "chart to write: .png, .svg or .pdf (default bench.png)",
            .manual = R"(Names the chart to draw. Its ending chooses PNG, SVG or PDF. A chart is 8 cm wide, with the
                machine in its caption.)",
            .example = "sparsereel bench plot quality.json -o quality.svg"},
           "FILE");
  command->callback([&line, files] {
    std::vector<NamedFile> named;
    for (const std::string& report : files->reports) named.push_back({"the report", report});
    named.push_back({"--output", files->output});
    check_distinct(named);
    bench_plot(files->reports, files->output, line.report);
  });
}

}  // namespace sparsereel::app
