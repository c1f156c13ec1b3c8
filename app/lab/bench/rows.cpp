// Declares the columns of each benchmark, and computes fields from measurements.
#include "app/lab/bench/rows.h"

#include <algorithm>
#include <cmath>

#include "app/lab/bench/classifier.h"
#include "app/lab/bench/sections.h"
#include "app/lab/measure/timing.h"
#include "hilbert/error.h"
#include "models/engine/denoising.h"
#include "models/request/attention_run.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::app::bench {
namespace {

/// Returns the properties of a workload that its shape does not say: "causal, 8 heads of k and v", "226 text".
std::string traits(const Row& row) {
  std::string text = row.at("causal").get<bool>() ? "causal" : "";
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (row.contains("token_order")) text = text_of(row, "token_order") + " order";
  if (row.at("text_tokens") > 0) add(row.at("text_tokens").dump() + " text");
  if (row.contains("kv_heads")) add(row.at("kv_heads").dump() + " heads of k and v");
  return text;
}

constexpr const char* kMeans[] = {"psnr",
                                  "ssim",
                                  "ms_ssim",
                                  "rel_l1",
                                  "predicted_error",
                                  "sparsity",
                                  "mean_share",
                                  "computed_steps",
                                  "computed_dense_steps",
                                  "kept_share"};
const std::vector<std::string> kTimes = {"step_ms", "denoise_seconds", "full_step_ms", "full_denoise_seconds"};
const std::vector<std::string> kFidelity = {"psnr", "ssim", "ms_ssim"};

std::vector<std::string> with_endings(const std::vector<std::string>& keys, const std::vector<std::string>& endings) {
  std::vector<std::string> all;
  for (const std::string& key : keys)
    for (const std::string& ending : endings) all.push_back(key + ending);
  return all;
}

/// Returns the figure `key` of each prompt that has it.
std::vector<double> figures(const Row& prompts, const char* key) {
  std::vector<double> known;
  for (const Row& prompt : prompts)
    if (const auto figure = number_of(prompt, key)) known.push_back(*figure);
  return known;
}

/// Adds the 5th percentile and the standard deviation of a figure over two or more prompts.
void add_spread(const Row& prompts, const std::string& key, Row& row) {
  const std::vector<double> known = figures(prompts, key.c_str());
  if (known.size() < 2) return;
  const double mean = row[key];
  double squares = 0;
  for (const double figure : known) squares += (figure - mean) * (figure - mean);
  row[key + "_p5"] = quantile(known, 0.05);
  row[key + "_sd"] = std::sqrt(squares / static_cast<double>(known.size() - 1));
}

/// Returns the mean difference in PSNR with its standard error, such as "-1.25 ± 0.08".
std::string difference_text(const Row& row) {
  const auto mean = number_of(row, "psnr_difference"), error = number_of(row, "psnr_difference_se");
  if (!mean) return {};
  return number_text(*mean, 3) + (error ? " ± " + number_text(*error, 2) : "");
}

std::string judged_text(const Row& row) {
  if (!row.contains("judge_counts")) return {};
  return row["judge_counts"]["right"].dump() + " of " + row["judge_counts"]["prompts"].dump();
}

bool is_step(const Row& row) {
  return text_of(row, "stage") == kStepStage;
}

/// Returns which program made the row: empty for this program, else the first word of a baseline's mode ("diffusers"
/// for "diffusers eager"). Steps of one program share its other stages.
std::string owner_of(const Row& row) {
  const std::string mode = text_of(row, "mode");
  return text_of(row, "token_order").empty() ? mode.substr(0, mode.find(' ')) : "";
}

/// Returns the milliseconds of a stage that the steps of `owner` share; 0 if it has no time.
double shared_ms(const Rows& rows, const std::string& owner, const std::string& stage) {
  for (const Row& row : rows)
    if (const auto ms = number_of(row, "ms"); ms && text_of(row, "stage") == stage && owner_of(row) == owner)
      return *ms;
  return 0;
}

/// Scales the parts so that they add up to the row's ms. The parts may be in any unit.
void scale_parts(const Row& parts, Row& row) {
  const auto matmul = number_of(parts, "matmul_ms"), attention = number_of(parts, "attention_ms");
  const auto rest = number_of(parts, "rest_ms");
  if (!matmul || !attention || !rest || *matmul + *attention + *rest <= 0) return;
  row.update(part_fields(parts_of(row["ms"], {{.matmul = *matmul, .attention = *attention, .rest = *rest}})));
}

Row baseline_row(const Row& json, const std::string& where) {
  const auto fail = [&](const std::string& field, const std::string& what) {
    return bad_input(where + ": " + field + " " + what,
                     "write the fields 'mode', 'stage' and 'ms' in every row, as tests/bench/diffusers_report.py does");
  };
  if (!json.is_object()) throw fail("it", "is not an object");
  for (const char* field : {"mode", "stage"})
    if (!json.contains(field) || !json[field].is_string()) throw fail(field, "is missing or not a text");
  const std::string mode = json["mode"], stage = json["stage"];
  if (mode.empty() || mode == "full" || mode == "quantized" || mode == "sparse")
    throw fail("mode", "is empty or a mode of this program");
  const auto ms = number_of(json, "ms");
  if (!ms || !(*ms > 0)) throw fail("ms", "is missing or not a number above 0");
  Row row = stage == kStepStage ? step_row({.mode = attention::Mode::full}) : stage_row(stage);
  row["mode"] = mode;
  if (const auto peak = number_of(json, "peak_gib")) row["peak_gib"] = *peak;
  if (row.contains("token_order")) row["token_order"] = "";
  for (const char* field : {"ms", "ms_lower_quartile", "ms_upper_quartile", "ms_min", "ms_max"})
    row[field] = number_of(json, field).value_or(*ms);
  if (stage == kStepStage) scale_parts(json, row);
  if (const std::string note = text_of(json, "note"); !note.empty()) row["note"] = note;
  return row;
}

/// Throws Error if the settings of the baseline's run and of this run differ in a setting on which times depend.
void check_settings(const nlohmann::json& theirs, const nlohmann::json& ours, bool text_has_length,
                    const std::string& file) {
  for (const std::string field :
       {"layers", "heads", "head_dim", "tokens", "text_tokens", "batch", "dtype", "width", "height", "frames"}) {
    if (!text_has_length && field.ends_with("tokens")) continue;  // this run knows these only once its text is encoded
    const nlohmann::json value = theirs.is_object() ? theirs.value(field, nlohmann::json()) : nlohmann::json();
    if (value != ours.at(field))
      throw bad_file(
          file,
          std::string("settings.") + field + " is " + value.dump() + ", but in this run it is " + ours.at(field).dump(),
          "measure both with the same settings: tests/bench/diffusers_report.py takes them from this command's "
          "--report");
  }
}

}  // namespace

Columns attention_columns() {
  const Column shape{.key = "",
                     .title = "",
                     .meaning = "what B,H,N,D does not say",
                     .is_choice = true,
                     .shown = Shown::to_people,
                     .text = traits};
  return joined(
      {columns({"workload", "shape"}), Columns{shape}, columns({"mode"}), selection_columns(),
       columns({"kernel", "dtype"}), time_columns("ms"),
       columns({"tops", "effective_tops", "limit_percent", "speedup", "prepass_ms", "prepass_percent", "prediction_ms",
                "sparsity", "skipped_pv", "mean_share", "predicted_error", "rel_l1", "cosine"}),
       varying({"arithmetic"}), columns({"note"}),
       in_csv({"device", "causal", "kv_heads", "text_tokens", "token_order"})});
}

Row attention_row(const Workload& workload, const std::string& mode, const attention::Policy* policy) {
  Row row = selection_fields(policy);
  for (const char* unknown : {"tops", "effective_tops", "limit_percent", "speedup", "sparsity", "skipped_pv",
                              "mean_share", "predicted_error", "rel_l1", "cosine"})
    row[unknown] = nullptr;
  row.update(time_fields({}));
  const Shape& shape = workload.shape;
  row.update({{"mode", mode},
              {"shape", {shape.batch, shape.heads, shape.tokens, shape.head_dim}},
              {"causal", workload.causal},
              {"text_tokens", workload.text_tokens}});
  if (!workload.name.empty()) row["workload"] = workload.name;
  if (workload.captured()) row["token_order"] = workload.token_order;
  if (shape.kv_heads != 0) row["kv_heads"] = shape.kv_heads;
  return row;
}

void compare_with_dense(Rows& rows) {
  std::optional<double> fastest;
  for (const Row& row : rows)
    if (const auto ms = number_of(row, "ms"); ms && text_of(row, "mode") == "full")
      fastest = std::min(fastest.value_or(*ms), *ms);
  for (Row& row : rows)
    if (const auto ms = number_of(row, "ms"); fastest && ms.value_or(0) > 0) row["speedup"] = *fastest / *ms;
}

void split_prepass(Rows& rows) {
  const auto quantized = std::ranges::find_if(
      rows, [](const Row& row) { return text_of(row, "mode") == "quantized" && number_of(row, "prepass_ms"); });
  if (quantized == rows.end()) return;
  for (Row& row : rows)
    if (const auto ms = number_of(row, "prepass_ms");
        ms && text_of(row, "mode") == "sparse" && !row.contains("arithmetic"))
      row["prediction_ms"] = std::max(0.0, *ms - *number_of(*quantized, "prepass_ms"));
}

Columns quality_columns() {
  Columns mode = varying({"mode"}), means = columns({"mean_share"}), judge = columns({"judge"});
  mode[0].usual = attention::name(attention::Mode::sparse);  // hide the column only if every row is sparse
  means[0].beside = "cell";
  judge[0].text = judged_text;
  const Columns head = joined(
      {columns({"preset"}), selection_columns(), columns({"profile"}), mode,
       varying({"selection_rows", "similarity", "dense_steps", "token_order", "cache", "weights", "computed_steps"}),
       in_csv({"computed_dense_steps"})});
  const Columns fidelity = joined({columns({"psnr"}), Columns{to_people("psnr_p5", {})}, columns({"psnr_lowest"}),
                                   Columns{to_people("psnr_difference", difference_text)},
                                   in_csv(with_endings(kFidelity, {"_difference", "_difference_se"})),
                                   columns({"ssim", "ms_ssim", "rel_l1", "predicted_error", "sparsity"}), means});
  return joined({head, fidelity, columns({"step_ms"}), Columns{quartiles_column("step_ms")},
                 columns({"denoise_seconds"}), in_csv({"full_step_ms", "full_denoise_seconds"}),
                 columns({"speedup", "beaten_by"}), judge, in_csv({"kernel", "name"}), varying({"arithmetic"}),
                 columns({"note"}), in_csv(with_endings(kFidelity, {"_p5", "_sd"})),
                 in_csv(with_endings(kTimes, {"_lower_quartile", "_upper_quartile"}))});
}

Row quality_row(const Combination& combination, const std::string& name) {
  Row row = fields_of(combination);
  for (const char* unknown : {"psnr_lowest", "speedup", "judge", "beaten_by"}) row[unknown] = nullptr;
  for (const char* unknown : kMeans) row[unknown] = nullptr;
  for (const std::string& unknown : with_endings(kTimes, {"", "_lower_quartile", "_upper_quartile"}))
    row[unknown] = nullptr;
  for (const std::string& unknown : with_endings(kFidelity, {"_p5", "_sd", "_difference", "_difference_se"}))
    row[unknown] = nullptr;
  row.update({{"name", name},
              {"preset", combination.preset.empty() ? Row() : Row(combination.preset)},
              {"kernel", ""},
              {"prompts", Row::array()}});
  return row;
}

void summarise(Row& row, const std::optional<StepTimes>& times, int64_t run_steps) {
  const Row& prompts = row["prompts"];
  for (const char* key : kMeans) {
    const std::vector<double> known = figures(prompts, key);
    double sum = 0;
    for (const double figure : known) sum += figure;
    row[key] = known.empty() ? Row() : Row(sum / static_cast<double>(known.size()));
  }
  const std::vector<double> psnr = figures(prompts, "psnr");
  if (!psnr.empty()) row["psnr_lowest"] = *std::ranges::min_element(psnr);
  for (const std::string& key : kFidelity) add_spread(prompts, key, row);
  if (times) times->fill(row, run_steps);
  const auto own = number_of(row, "denoise_seconds"), full = number_of(row, "full_denoise_seconds");
  if (own && full) row["speedup"] = *full / *own;
  Rows verdicts;
  for (const Row& prompt : prompts)
    if (prompt.contains("judge")) verdicts.push_back(prompt["judge"]);
  const Row counts = count_verdicts(verdicts);
  const double judged = counts["prompts"];
  if (judged > 0) row.update({{"judge", counts["right"].get<double>() / judged}, {"judge_counts", counts}});
}

Columns stage_columns() {
  return joined({columns({"mode"}), selection_columns(), columns({"token_order", "cache", "computed_steps"}),
                 in_csv({"stage"}), time_columns("ms a step"),
                 columns({"matmul_ms", "attention_ms", "rest_ms", "speedup", "video_seconds", "sparsity", "mean_share",
                          "psnr", "ssim"}),
                 Columns{latents_column()}, columns({"peak_gib"}), varying({"arithmetic"}),
                 columns({"kernel", "note"})});
}

Column latents_column() {
  return titled("rel_l1", "latents L1",
                "relative L1 of the latents after these steps against full attention's; lower is closer");
}

Row stage_row(const std::string& stage) {
  Row row = {{"mode", nullptr}, {"stage", stage}};
  for (const char* unknown : {"sparsity", "psnr", "ssim", "peak_gib"}) row[unknown] = nullptr;
  row.update(time_fields({}));
  return row;
}

Row step_row(const Combination& combination) {
  Row row = stage_row(kStepStage);
  row.update(fields_of(combination));
  for (const char* unknown :
       {"mean_share", "computed_steps", "matmul_ms", "attention_ms", "rest_ms", "speedup", "video_seconds", "rel_l1"})
    row[unknown] = nullptr;
  row.update({{"kernel", ""}, {"layer_sparsity", Row::array()}, {"step_layer_sparsity", Row::array()}});
  if (!combination.profile.empty()) row["mode"] = "profile";
  return row;
}

void add_attention(const models::AttentionRun& run, Row& row) {
  row["kernel"] = run.kernel;
  row["sparsity"] = run.statistics.sparsity();
  if (!row["cell"].is_null()) row["mean_share"] = run.statistics.mean_share();
  for (const attention::Statistics& layer : run.per_layer) row["layer_sparsity"].push_back(layer.sparsity());
  for (const auto& step : run.per_step) {
    Row layers = Row::array();
    for (const attention::Statistics& layer : step) layers.push_back(layer.calls > 0 ? Row(layer.sparsity()) : Row());
    row["step_layer_sparsity"].push_back(layers);
  }
  if (!row["cache"].is_null()) row["computed_steps"] = models::computed_steps(run);
}

void compare_steps(Rows& rows, int64_t steps) {
  std::optional<double> full;
  for (const Row& row : rows)
    if (is_step(row) && text_of(row, "mode") == "full" && row["cache"].is_null() && number_of(row, "ms"))
      full = number_of(row, "ms");
  for (Row& row : rows) {
    const auto ms = number_of(row, "ms");
    if (!is_step(row) || !ms) continue;
    if (full) row["speedup"] = *full / *ms;
    const std::string owner = owner_of(row);
    const double decode = shared_ms(rows, owner, "decode"), text = shared_ms(rows, owner, "text");
    const double rest = text + decode + shared_ms(rows, owner, "sound");
    if (decode > 0 && text > 0) row["video_seconds"] = (rest + static_cast<double>(steps) * *ms) / 1000;
  }
}

std::string stage_markdown(const Rows& rows, int64_t steps, bool aligned) {
  Rows contenders, shared;
  for (const Row& row : rows) (is_step(row) ? contenders : shared).push_back(row);
  Columns of_contenders = stage_columns();
  std::ranges::find(of_contenders, "video_seconds", &Column::key)->title = std::to_string(steps) + "-step video, s";
  const Columns of_shared =
      joined({Columns{titled("mode", "")}, columns({"stage"}), time_columns("ms"), columns({"peak_gib", "note"})});
  return markdown(of_contenders, contenders, aligned) + "\n" + markdown(of_shared, shared, aligned) +
         explained(of_contenders, contenders);
}

Rows read_baseline(const std::string& file, const nlohmann::json& settings, bool text_has_length) {
  const std::string remedy = "make it with tests/bench/diffusers_report.py";
  const nlohmann::json json = models::read_json(file, remedy);
  const auto rows = json.is_object() ? json.find("rows") : json.end();
  if (rows == json.end() || !rows->is_array() || rows->empty())
    throw bad_file(file, "the key rows is missing, empty or not an array", remedy);
  check_settings(json.value("settings", nlohmann::json()), settings, text_has_length, file);
  Rows baselines;
  for (size_t i = 0; i < rows->size(); ++i)
    baselines.push_back(baseline_row((*rows)[i], file + ": rows[" + std::to_string(i) + "]"));
  return baselines;
}

}  // namespace sparsereel::app::bench
