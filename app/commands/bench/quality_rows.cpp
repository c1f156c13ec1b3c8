// The columns of `bench quality`, and what its rows say of all prompts.
#include "app/commands/bench/quality_rows.h"

#include <algorithm>

#include "app/commands/bench/judge.h"

namespace sparsereel::app::bench {
namespace {

constexpr const char* kMeans[] = {"psnr",     "ssim",       "rel_l1",        "predicted_error",
                                  "sparsity", "mean_share", "computed_steps"};

/// A figure of the prompts that have it.
std::vector<double> figures(const Row& prompts, const char* key) {
  std::vector<double> known;
  for (const Row& prompt : prompts)
    if (const auto figure = number_of(prompt, key)) known.push_back(*figure);
  return known;
}

std::string judged_text(const Row& row) {
  if (!row.contains("judge_counts")) return {};
  return row["judge_counts"]["right"].dump() + " of " + row["judge_counts"]["prompts"].dump();
}

}  // namespace

Columns quality_columns() {
  return joined(
      {selection_columns(), Columns{{"profile", "profile"},
                                    {.name = "mode", .title = "mode", .varying = true},
                                    {.name = "selection_rows", .title = "rows", .varying = true},
                                    {.name = "similarity", .title = "similarity", .varying = true},
                                    {.name = "dense_steps", .title = "dense steps", .varying = true},
                                    {.name = "token_order", .title = "order", .varying = true},
                                    {.name = "cache", .title = "cache", .varying = true},
                                    {.name = "computed_steps", .title = "computed", .digits = 3, .varying = true},
                                    {"psnr", "PSNR dB", 3},
                                    {"psnr_lowest", "lowest", 3},
                                    {"ssim", "SSIM", 4},
                                    {"rel_l1", "rel. L1", 3},
                                    {"predicted_error", "predicted", 3},
                                    {"sparsity", "sparsity", 3},
                                    {.name = "mean_share", .title = "means' cost", .digits = 2, .beside = "cell"},
                                    {"step_ms", "ms a step", 4},
                                    {"full_step_ms", "full, ms", 4},
                                    {"speedup", "x full", 3},
                                    {.name = "judge", .title = "judge", .digits = 3, .text = judged_text},
                                    {"kernel", "", 0, Shown::in_csv},
                                    {"note", "note"}}});
}

Row quality_row(const Combination& combination) {
  Row row = fields_of(combination);
  for (const char* unknown : {"psnr_lowest", "step_ms", "full_step_ms", "speedup", "judge"}) row[unknown] = nullptr;
  for (const char* unknown : kMeans) row[unknown] = nullptr;
  row.update({{"kernel", ""}, {"prompts", Row::array()}});
  return row;
}

void summarise(Row& row) {
  const Row& prompts = row["prompts"];
  for (const char* key : kMeans) {
    const std::vector<double> known = figures(prompts, key);
    double sum = 0;
    for (const double figure : known) sum += figure;
    row[key] = known.empty() ? Row() : Row(sum / static_cast<double>(known.size()));
  }
  const std::vector<double> psnr = figures(prompts, "psnr");
  if (!psnr.empty()) row["psnr_lowest"] = *std::ranges::min_element(psnr);
  const auto step = number_of(row, "step_ms"), full = number_of(row, "full_step_ms");
  if (step && full) row["speedup"] = *full / *step;
  Rows verdicts;
  for (const Row& prompt : prompts)
    if (prompt.contains("judge")) verdicts.push_back(prompt["judge"]);
  const Row counts = count_verdicts(verdicts);
  if (counts["prompts"] == 0) return;
  row.update({{"judge", right_share(counts)}, {"judge_counts", counts}});
}

}  // namespace sparsereel::app::bench
