// The columns of `bench pipeline`.
#include "app/commands/bench/stage_rows.h"

#include <algorithm>
#include <functional>

#include "app/measure/table.h"
#include "hilbert/error.h"
#include "models/checkpoint/model_folder.h"

namespace sparsereel::app::bench {
namespace {

using StageColumn = Column<StageRow>;
using StageColumns = std::vector<StageColumn>;

std::optional<double> of_split(const StageRow& row, double Split::*member) {
  return row.split ? std::optional((*row.split).*member) : std::nullopt;
}

std::string quartiles(const StageRow& row) {
  if (!row.ms || row.ms->least == row.ms->most) return {};
  return quartiles_text(*row.ms);
}

StageColumn time_column() {
  return StageColumn::number("ms", "ms", 4, [](const StageRow& row) { return of_spread(row.ms, &Spread::median); });
}

StageColumns contender_columns() {
  StageColumns columns = {StageColumn::text("mode", "mode", [](const StageRow& row) { return row.mode; })};
  append(columns, selection_columns<StageRow>([](const StageRow& row) { return row.selection; }));
  columns.push_back(StageColumn::text("order", "token_order", [](const StageRow& row) { return row.token_order; }));
  columns.push_back(StageColumn::text("cache", "cache", [](const StageRow& row) { return row.cache; }));
  columns.push_back(
      StageColumn::chosen("computed", "computed_steps", [](const StageRow& row) { return row.computed_steps; }));
  return columns;
}

StageColumns split_columns() {
  return {
      StageColumn::number("matmul", "matmul_ms", 3, [](const StageRow& row) { return of_split(row, &Split::matmul); }),
      StageColumn::number("attention", "attention_ms", 3,
                          [](const StageRow& row) { return of_split(row, &Split::attention); }),
      StageColumn::number("rest", "rest_ms", 3, [](const StageRow& row) { return of_split(row, &Split::rest); }),
      StageColumn::number("x full", "speedup", 3, [](const StageRow& row) { return row.speedup; })};
}

StageColumns quality_columns() {
  return {StageColumn::number("sparsity", "sparsity", 3, [](const StageRow& row) { return row.sparsity; }),
          StageColumn::number("means", "mean_share", 3, [](const StageRow& row) { return row.mean_share; }),
          StageColumn::number("PSNR dB", "psnr", 3, [](const StageRow& row) { return row.psnr; }),
          StageColumn::number("SSIM", "ssim", 4, [](const StageRow& row) { return row.ssim; }),
          StageColumn::number("rel. L1", "rel_l1", 3, [](const StageRow& row) { return row.rel_l1; }),
          StageColumn::number("peak GiB", "peak_gib", 3, [](const StageRow& row) { return row.peak_gib; })};
}

std::string contender_table(const std::vector<StageRow>& rows, int64_t steps) {
  StageColumns columns = contender_columns();
  columns.push_back(time_column());
  columns.back().title = "ms a step";
  columns.push_back(StageColumn::text("quartiles", "", quartiles));
  append(columns, split_columns());
  columns.push_back(StageColumn::number(std::to_string(steps) + "-step video, s", "", 3,
                                        [](const StageRow& row) { return row.video_seconds; }));
  append(columns, quality_columns());
  columns.push_back(StageColumn::text("kernel", "", [](const StageRow& row) { return row.kernel; }));
  columns.push_back(StageColumn::text("note", "", [](const StageRow& row) { return row.note; }));
  return markdown_of(rows, columns);
}

std::string shared_table(const std::vector<StageRow>& rows) {
  StageColumns columns = {StageColumn::text("", "", [](const StageRow& row) { return row.mode; }),
                          StageColumn::text("stage", "", [](const StageRow& row) { return row.stage; }),
                          time_column(),
                          StageColumn::text("quartiles", "", quartiles),
                          StageColumn::number("peak GiB", "", 3, [](const StageRow& row) { return row.peak_gib; }),
                          StageColumn::text("note", "", [](const StageRow& row) { return row.note; })};
  return markdown_of(rows, columns);
}

/// Who shares stages other than the step: our contenders, or the ways to run a rival ("diffusers eager").
std::string owner_of(const StageRow& row) {
  return row.token_order.empty() ? row.mode.substr(0, row.mode.find(' ')) : "";
}

/// Milliseconds of a stage that the owner's steps share, else 0.
double shared_ms(const std::vector<StageRow>& rows, const std::string& owner, const std::string& stage) {
  for (const StageRow& row : rows)
    if (row.stage == stage && owner_of(row) == owner && row.ms) return row.ms->median;
  return 0;
}

nlohmann::json to_json(const StageRow& row) {
  nlohmann::json json = {{"mode", row.mode.empty() ? nlohmann::json(nullptr) : nlohmann::json(row.mode)},
                         {"stage", row.stage},
                         {"sparsity", or_null(row.sparsity)},
                         {"psnr", or_null(row.psnr)},
                         {"ssim", or_null(row.ssim)},
                         {"peak_gib", or_null(row.peak_gib)}};
  json.update(spread_fields(row.ms));
  if (!row.note.empty()) json["note"] = row.note;
  if (row.stage != kStepStage) return json;
  json.update(selection_fields(row.selection));
  json.update({{"mean_share", or_null(row.mean_share)},
               {"token_order", row.token_order},
               {"cache", row.cache.empty() ? nlohmann::json() : nlohmann::json(row.cache)},
               {"computed_steps", row.computed_steps ? nlohmann::json(*row.computed_steps) : nlohmann::json()},
               {"kernel", row.kernel},
               {"matmul_ms", or_null(of_split(row, &Split::matmul))},
               {"attention_ms", or_null(of_split(row, &Split::attention))},
               {"rest_ms", or_null(of_split(row, &Split::rest))},
               {"speedup", or_null(row.speedup)},
               {"video_seconds", or_null(row.video_seconds)},
               {"rel_l1", or_null(row.rel_l1)},
               {"layer_sparsity", row.layer_sparsity},
               {"step_layer_sparsity", row.step_layer_sparsity}});
  return json;
}

StageRow rival_row(const nlohmann::json& json, const std::string& where) {
  const auto fail = [&](const std::string& field, const std::string& what) {
    return bad_input(where + ": " + field + " " + what,
                     "give each row mode, stage and ms (tests/bench/diffusers_report.py)");
  };
  if (!json.is_object()) throw fail("it", "is no object");
  StageRow row;
  for (const auto& [field, text] : {std::pair("mode", &row.mode), std::pair("stage", &row.stage)}) {
    const auto found = json.find(field);
    if (found == json.end() || !found->is_string()) throw fail(field, "is missing or no text");
    *text = found->get<std::string>();
  }
  if (row.mode.empty() || row.mode == "full" || row.mode == "quantized" || row.mode == "sparse")
    throw fail("mode", "is empty or one of this program's");
  const auto ms = number_of(json, "ms");
  if (!ms || !(*ms > 0)) throw fail("ms", "is missing or no number above 0");
  row.ms = Spread{.median = *ms,
                  .lower_quartile = number_of(json, "ms_lower_quartile").value_or(*ms),
                  .upper_quartile = number_of(json, "ms_upper_quartile").value_or(*ms),
                  .least = number_of(json, "ms_min").value_or(*ms),
                  .most = number_of(json, "ms_max").value_or(*ms)};
  const auto matmul = number_of(json, "matmul_ms"), attention = number_of(json, "attention_ms");
  const auto rest = number_of(json, "rest_ms");
  if (matmul && attention && rest && *matmul + *attention + *rest > 0)
    row.split = parts_of(*ms, {{.matmul = *matmul, .attention = *attention, .rest = *rest}});
  row.peak_gib = number_of(json, "peak_gib");
  const auto note = json.find("note");
  if (note != json.end() && note->is_string()) row.note = note->get<std::string>();
  return row;
}

/// What the times of both depend on.
void check_settings(const nlohmann::json& theirs, const nlohmann::json& ours, const std::string& file) {
  for (const char* field :
       {"layers", "heads", "head_dim", "tokens", "text_tokens", "batch", "dtype", "width", "height", "frames"}) {
    const nlohmann::json value = theirs.is_object() ? theirs.value(field, nlohmann::json()) : nlohmann::json();
    if (value != ours.at(field))
      throw bad_file(
          file, std::string("settings.") + field + " is " + value.dump() + ", this run's is " + ours.at(field).dump(),
          "give both the same: tests/bench/diffusers_report.py takes them from this command's --report");
  }
}

}  // namespace

void compare_steps(std::vector<StageRow>& rows, int64_t steps) {
  std::optional<double> full;
  for (const StageRow& row : rows)
    if (row.stage == kStepStage && row.mode == "full" && row.cache.empty() && row.ms) full = row.ms->median;
  for (StageRow& row : rows) {
    if (row.stage != kStepStage || !row.ms) continue;
    if (full) row.speedup = *full / row.ms->median;
    const std::string owner = owner_of(row);
    const double decode = shared_ms(rows, owner, "decode"), text = shared_ms(rows, owner, "text");
    if (decode > 0 && text > 0)
      row.video_seconds = (text + static_cast<double>(steps) * row.ms->median + decode) / 1000;
  }
}

std::string stage_markdown(const std::vector<StageRow>& rows, int64_t steps) {
  std::vector<StageRow> contenders, shared;
  for (const StageRow& row : rows) (row.stage == kStepStage ? contenders : shared).push_back(row);
  return contender_table(contenders, steps) + "\n" + shared_table(shared);
}

std::string stage_csv(const std::vector<StageRow>& rows) {
  StageColumns columns = contender_columns();
  columns.push_back(StageColumn::text("", "stage", [](const StageRow& row) { return row.stage; }));
  columns.push_back(time_column());
  append(columns, spread_columns<StageRow>());
  append(columns, split_columns());
  columns.push_back(StageColumn::number("", "video_seconds", 0, [](const StageRow& row) { return row.video_seconds; }));
  append(columns, quality_columns());
  columns.push_back(StageColumn::text("", "kernel", [](const StageRow& row) { return row.kernel; }));
  columns.push_back(StageColumn::text("", "note", [](const StageRow& row) { return row.note; }));
  return csv_of(rows, columns);
}

nlohmann::json stage_json(const std::vector<StageRow>& rows) {
  nlohmann::json json = nlohmann::json::array();
  for (const StageRow& row : rows) json.push_back(to_json(row));
  return json;
}

std::vector<StageRow> read_rival(const std::string& file, const nlohmann::json& settings) {
  const std::string remedy = "make it with tests/bench/diffusers_report.py";
  const nlohmann::json json = models::read_json(file, remedy);
  const auto rows = json.is_object() ? json.find("rows") : json.end();
  if (rows == json.end() || !rows->is_array() || rows->empty())
    throw bad_file(file, "rows is missing, empty or no array", remedy);
  check_settings(json.value("settings", nlohmann::json()), settings, file);
  std::vector<StageRow> rivals;
  for (size_t i = 0; i < rows->size(); ++i)
    rivals.push_back(rival_row((*rows)[i], file + ": rows[" + std::to_string(i) + "]"));
  return rivals;
}

}  // namespace sparsereel::app::bench
