// From a report's rows to bars and points; see bench_plot.h.
#include "app/commands/bench_plot.h"

#include <nlohmann/json.hpp>

#include "app/commands/bench/columns.h"
#include "app/commands/bench/stage_rows.h"
#include "hilbert/error.h"
#include "models/checkpoint/model_folder.h"

namespace sparsereel::app {
namespace {

constexpr const char* kRemedy = "give the --report (or --json) of 'sparsereel bench pipeline' or 'bench attention'";

using bench::number_of;
using nlohmann::json;

std::string text_of(const json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// "sparse 0.5 native", "sparse 0.5 means of 16 by error"
std::string name_of(const json& row) {
  std::string name = text_of(row, "mode");
  if (const std::string selection = bench::selection_name(row); !selection.empty()) name.append(" ").append(selection);
  const std::string order = text_of(row, "token_order");
  if (!order.empty() && order != "hilbert") name.append(" ").append(order);
  return name;
}

std::optional<double> nearness(const json& row, bool decibels) {
  if (decibels) return number_of(row, "psnr");
  const auto error = number_of(row, "rel_l1");
  return error ? std::optional(1 - *error) : std::nullopt;
}

PlotRow plot_row(const json& row, bool decibels) {
  PlotRow result;
  result.name = name_of(row);
  result.total = *number_of(row, "ms");
  result.speedup = number_of(row, "speedup");
  result.quality = nearness(row, decibels);
  const auto matmul = number_of(row, "matmul_ms"), attention = number_of(row, "attention_ms");
  const auto rest = number_of(row, "rest_ms");
  if (matmul && attention && rest) result.parts = {*matmul, *attention, *rest};
  return result;
}

std::string title_of(const json& report) {
  const json settings = report.value("settings", json::object()), machine = report.value("machine", json::object());
  std::string title = text_of(settings, "model");
  for (const std::string& more : {text_of(settings, "dtype"), text_of(machine, "name")})
    if (!more.empty()) title.append(title.empty() ? "" : ", ").append(more);
  return title;
}

}  // namespace

PlotData plot_of(const json& report, const std::string& file) {
  const json rows = report.is_object() ? report.value("rows", json()) : json();
  const auto fail = [&](const std::string& what) { return bad_input(file + ": " + what, kRemedy); };
  if (!rows.is_array()) throw fail("rows is missing or no array");
  std::vector<json> drawn;
  bool decibels = false, steps = false;
  for (const json& row : rows) {
    if (!row.is_object() || !number_of(row, "ms")) continue;
    if (row.contains("stage") && text_of(row, "stage") != bench::kStepStage) continue;
    drawn.push_back(row);
    steps = steps || row.contains("stage");
    decibels = decibels || number_of(row, "psnr").has_value();
  }
  if (drawn.empty()) throw fail("holds no row with a time to draw");
  PlotData data = {.title = title_of(report),
                   .unit = steps ? "ms a step" : "ms a call",
                   .quality = decibels ? "PSNR dB" : "1 - rel. L1",
                   .parts = {},
                   .rows = {}};
  for (const json& row : drawn) {
    data.rows.push_back(plot_row(row, decibels));
    if (!data.rows.back().parts.empty()) data.parts = {"matmul", "attention", "rest"};
  }
  return data;
}

void bench_plot(const std::filesystem::path& file, const std::filesystem::path& output, RunReport& report) {
  check_png("--output", output);
  const PlotData data = plot_of(models::read_json(file, kRemedy), file.string());
  write_plot(output, data);
  report.last_line = output.string() + ": " + std::to_string(data.rows.size()) + " bars";
}

}  // namespace sparsereel::app
