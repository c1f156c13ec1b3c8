// Columns, and sums over what was measured.
#include "app/lab/bench/rows.h"

#include <algorithm>
#include <cmath>

#include "app/lab/bench/judge.h"
#include "app/lab/bench/sections.h"
#include "app/lab/measure/timing.h"
#include "hilbert/error.h"
#include "models/engine/denoising.h"
#include "models/request/attention_run.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::app::bench {
namespace {

/// What the shape alone does not say: "causal, 8 heads of k and v", "226 text".
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
constexpr const char* kTimes[] = {"step_ms", "denoise_seconds", "full_step_ms", "full_denoise_seconds"};
constexpr const char* kQuartiles[] = {"_lower_quartile", "_upper_quartile"};
constexpr const char* kNearness[] = {"psnr", "ssim", "ms_ssim"};
constexpr const char* kDifferences[] = {"psnr_difference", "ssim_difference", "ms_ssim_difference"};

/// A figure of the prompts that have it.
std::vector<double> figures(const Row& prompts, const char* key) {
  std::vector<double> known;
  for (const Row& prompt : prompts)
    if (const auto figure = number_of(prompt, key)) known.push_back(*figure);
  return known;
}

/// Of a figure over the prompts, two or more: the 5th percentile, and the standard deviation.
void add_spread(const Row& prompts, const std::string& key, Row& row) {
  const std::vector<double> known = figures(prompts, key.c_str());
  if (known.size() < 2) return;
  const double mean = row[key];
  double squares = 0;
  for (const double figure : known) squares += (figure - mean) * (figure - mean);
  row[key + "_p5"] = quantile(known, 0.05);
  row[key + "_sd"] = std::sqrt(squares / static_cast<double>(known.size() - 1));
}

/// "-1.25 ± 0.08"
std::string difference_text(const Row& row) {
  const auto mean = number_of(row, "psnr_difference"), error = number_of(row, "psnr_difference_se");
  if (!mean) return {};
  return number_text(*mean, 3) + (error ? " ± " + number_text(*error, 2) : "");
}

Columns difference_columns() {
  Columns all = {{.name = "", .title = "paired, dB", .shown = Shown::to_people, .text = difference_text}};
  for (const std::string name : kDifferences)
    for (const char* of : {"", "_se"}) all.push_back({name + of, "", 4, Shown::in_csv});
  return all;
}

std::string judged_text(const Row& row) {
  if (!row.contains("judge_counts")) return {};
  return row["judge_counts"]["right"].dump() + " of " + row["judge_counts"]["prompts"].dump();
}

bool is_step(const Row& row) {
  return text_of(row, "stage") == kStepStage;
}

/// Who shares stages other than the step: our contenders, or the ways to run a rival ("diffusers eager").
std::string owner_of(const Row& row) {
  const std::string mode = text_of(row, "mode");
  return text_of(row, "token_order").empty() ? mode.substr(0, mode.find(' ')) : "";
}

/// Milliseconds of a stage that the owner's steps share, else 0.
double shared_ms(const Rows& rows, const std::string& owner, const std::string& stage) {
  for (const Row& row : rows)
    if (const auto ms = number_of(row, "ms"); ms && text_of(row, "stage") == stage && owner_of(row) == owner)
      return *ms;
  return 0;
}

/// The parts as shares of ms, whatever they were measured as.
void scale_parts(const Row& parts, Row& row) {
  const auto matmul = number_of(parts, "matmul_ms"), attention = number_of(parts, "attention_ms");
  const auto rest = number_of(parts, "rest_ms");
  if (!matmul || !attention || !rest || *matmul + *attention + *rest <= 0) return;
  row.update(part_fields(parts_of(row["ms"], {{.matmul = *matmul, .attention = *attention, .rest = *rest}})));
}

Row rival_row(const Row& json, const std::string& where) {
  const auto fail = [&](const std::string& field, const std::string& what) {
    return bad_input(where + ": " + field + " " + what,
                     "give each row mode, stage and ms (tests/bench/diffusers_report.py)");
  };
  if (!json.is_object()) throw fail("it", "is no object");
  for (const char* field : {"mode", "stage"})
    if (!json.contains(field) || !json[field].is_string()) throw fail(field, "is missing or no text");
  const std::string mode = json["mode"], stage = json["stage"];
  if (mode.empty() || mode == "full" || mode == "quantized" || mode == "sparse")
    throw fail("mode", "is empty or one of this program's");
  const auto ms = number_of(json, "ms");
  if (!ms || !(*ms > 0)) throw fail("ms", "is missing or no number above 0");
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

constexpr const char* kSparsity =
    "share of all blocks that were not computed; dense layers, dense steps and text count as computed";
constexpr const char* kMeansCost = "work on the means that stand for blocks, as a share of full attention's work";
constexpr const char* kSpeedup = "full attention's time over this row's: 2 is twice as fast, below 1 is slower";

/// A column, and what it means.
Column explained(const char* name, const char* title, int digits, const char* meaning) {
  return {.name = name, .title = title, .digits = digits, .meaning = meaning};
}

/// The columns of a row's choices in `bench quality`, the selection of blocks left out.
Columns choice_columns() {
  return {{"profile", "profile"},
          {.name = "mode", .title = "mode", .varying = true},
          {.name = "selection_rows", .title = "rows", .varying = true},
          {.name = "similarity", .title = "similarity", .varying = true},
          {.name = "dense_steps", .title = "dense steps", .varying = true},
          {.name = "token_order", .title = "order", .varying = true},
          {.name = "cache", .title = "cache", .varying = true},
          {.name = "weights", .title = "weights", .varying = true},
          {.name = "computed_steps",
           .title = "computed",
           .digits = 3,
           .varying = true,
           .meaning = "steps that no cache replaced"},
          {"computed_dense_steps", "", 3, Shown::in_csv}};
}

/// The columns that compare a row's videos and attention with full attention's.
Columns nearness_columns() {
  return {{"ssim", "SSIM", 4},
          {"ms_ssim", "MS-SSIM", 4},
          explained("rel_l1", "rel. L1", 3,
                    "error of attention's calls, each against exact attention on the same inputs; lower is nearer"),
          explained("predicted_error", "predicted", 3, "the same error as the selection of blocks predicts it")};
}

/// The columns of a row's work and time.
Columns cost_columns() {
  Column means = explained("mean_share", "means' cost", 2, kMeansCost);
  means.beside = "cell";
  Column judge = explained("judge", "judge", 3, "prompts whose video the classifier calls right");
  judge.text = judged_text;
  return {
      explained("sparsity", "sparsity", 3, kSparsity),
      means,
      {"step_ms", "ms a step", 4},
      quartiles_column("step_ms"),
      {"denoise_seconds", "denoising, s", 4},
      {"full_step_ms", "", 4, Shown::in_csv},
      {"full_denoise_seconds", "", 4, Shown::in_csv},
      explained("speedup", "x full", 3, kSpeedup),
      explained("beaten_by", "beaten by", 0,
                "the row that is nearest of those both nearer and faster than this one; faster: the quartiles of their "
                "times do not overlap"),
      judge,
      {"kernel", "", 0, Shown::in_csv},
      {"name", "", 0, Shown::in_csv},
      {.name = "arithmetic", .title = "bits", .varying = true},
      {"note", "note"}};
}

/// For CSV alone: how the figures of prompts and of times spread.
Columns spread_columns() {
  Columns columns;
  for (const std::string figure : kNearness)
    for (const char* ending : {"_p5", "_sd"}) columns.push_back({figure + ending, "", 4, Shown::in_csv});
  for (const std::string time : kTimes)
    for (const char* ending : kQuartiles) columns.push_back({time + ending, "", 4, Shown::in_csv});
  return columns;
}

}  // namespace

Columns attention_columns() {
  return joined({Columns{{"workload", "workload"},
                         {"shape", "B,H,N,D"},
                         {.name = "", .title = "", .shown = Shown::to_people, .text = traits},
                         {"mode", "mode"}},
                 selection_columns(), Columns{{"kernel", "kernel"}, {"dtype", "dtype"}}, time_columns("ms"),
                 Columns{{"tops", "TOPS", 4},
                         {"effective_tops", "effective", 4},
                         {"limit_percent", "% of limit", 3},
                         {"speedup", "x dense", 3},
                         {"prepass_ms", "pre-pass ms", 3},
                         {"prepass_percent", "pre-pass %", 3},
                         {"prediction_ms", "prediction ms", 3},
                         {"sparsity", "sparsity", 3},
                         {"skipped_pv", "P.V skipped", 3},
                         {"mean_share", "means", 3},
                         {"predicted_error", "predicted", 3},
                         {"rel_l1", "rel. L1", 3},
                         {"cosine", "cosine", 6},
                         {.name = "arithmetic", .title = "bits", .varying = true},
                         {"note", "note"},
                         {"device", "", 0, Shown::in_csv},
                         {"causal", "", 0, Shown::in_csv},
                         {"kv_heads", "", 0, Shown::in_csv},
                         {"text_tokens", "", 0, Shown::in_csv},
                         {"token_order", "", 0, Shown::in_csv}}});
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
  const auto quantised = std::ranges::find_if(
      rows, [](const Row& row) { return text_of(row, "mode") == "quantized" && number_of(row, "prepass_ms"); });
  if (quantised == rows.end()) return;
  for (Row& row : rows)
    if (const auto ms = number_of(row, "prepass_ms");
        ms && text_of(row, "mode") == "sparse" && !row.contains("arithmetic"))
      row["prediction_ms"] = std::max(0.0, *ms - *number_of(*quantised, "prepass_ms"));
}

Columns quality_columns() {
  return joined({Columns{{.name = "preset", .title = "preset"}}, selection_columns(), choice_columns(),
                 Columns{explained("psnr", "PSNR dB", 3,
                                   "of the frames against full attention's from the same noise, mean over the prompts; "
                                   "higher is nearer"),
                         {.name = "psnr_p5",
                          .title = "5th percentile",
                          .digits = 3,
                          .shown = Shown::to_people,
                          .meaning = "PSNR that 95% of the prompts exceed"},
                         explained("psnr_lowest", "lowest", 3, "PSNR of the prompt that came out worst")},
                 difference_columns(), nearness_columns(), cost_columns(), spread_columns()});
}

Row quality_row(const Combination& combination, const std::string& name) {
  Row row = fields_of(combination);
  for (const char* unknown : {"psnr_lowest", "speedup", "judge", "beaten_by"}) row[unknown] = nullptr;
  for (const std::string time : kTimes)
    for (const char* ending : {"", kQuartiles[0], kQuartiles[1]}) row[time + ending] = nullptr;
  for (const std::string figure : kNearness) row[figure + "_p5"] = row[figure + "_sd"] = nullptr;
  for (const char* unknown : kMeans) row[unknown] = nullptr;
  for (const std::string unknown : kDifferences) row[unknown] = row[unknown + "_se"] = nullptr;
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
  for (const char* key : kNearness) add_spread(prompts, key, row);
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
  return joined(
      {Columns{{"mode", "mode"}}, selection_columns(),
       Columns{{"token_order", "order"},
               {"cache", "cache"},
               {"computed_steps", "computed"},
               {"stage", "", 0, Shown::in_csv}},
       time_columns("ms a step"),
       Columns{{"matmul_ms", "matmul", 3},
               {"attention_ms", "attention", 3},
               {"rest_ms", "rest", 3},
               explained("speedup", "x full", 3, kSpeedup),
               {"video_seconds", "video, s", 3},
               explained("sparsity", "sparsity", 3, kSparsity),
               explained("mean_share", "means", 3, kMeansCost),
               {"psnr", "PSNR dB", 3},
               {"ssim", "SSIM", 4},
               explained("rel_l1", "rel. L1", 3, "difference of the latents after these steps from full attention's"),
               {"peak_gib", "peak GiB", 3},
               {.name = "arithmetic", .title = "bits", .varying = true},
               {"kernel", "kernel"},
               {"note", "note"}}});
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
    if (decode > 0 && text > 0) row["video_seconds"] = (text + static_cast<double>(steps) * *ms + decode) / 1000;
  }
}

std::string stage_markdown(const Rows& rows, int64_t steps, bool aligned) {
  Rows contenders, shared;
  for (const Row& row : rows) (is_step(row) ? contenders : shared).push_back(row);
  Columns of_contenders = stage_columns();
  std::ranges::find(of_contenders, "video_seconds", &Column::name)->title = std::to_string(steps) + "-step video, s";
  const Columns of_shared = joined({Columns{{"mode", ""}, {"stage", "stage"}}, time_columns("ms"),
                                    Columns{{"peak_gib", "peak GiB", 3}, {"note", "note"}}});
  return markdown(of_contenders, contenders, aligned) + "\n" + markdown(of_shared, shared, aligned);
}

Rows read_rival(const std::string& file, const nlohmann::json& settings) {
  const std::string remedy = "make it with tests/bench/diffusers_report.py";
  const nlohmann::json json = models::read_json(file, remedy);
  const auto rows = json.is_object() ? json.find("rows") : json.end();
  if (rows == json.end() || !rows->is_array() || rows->empty())
    throw bad_file(file, "rows is missing, empty or no array", remedy);
  check_settings(json.value("settings", nlohmann::json()), settings, file);
  Rows rivals;
  for (size_t i = 0; i < rows->size(); ++i)
    rivals.push_back(rival_row((*rows)[i], file + ": rows[" + std::to_string(i) + "]"));
  return rivals;
}

}  // namespace sparsereel::app::bench
