// Finds the steps in reports of `bench pipeline` that compute the same as a given row.
#include "app/lab/bench/step_times.h"

#include <algorithm>

#include "app/lab/bench/rows.h"
#include "app/lab/bench/video_plan.h"
#include "hilbert/error.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::app::bench {
namespace {

constexpr const char* kRemedy = "give the --report (or --json) of 'sparsereel bench pipeline'";

bool is_reduced(const Row& row) {
  const std::string weights = text_of(row, "weights");
  return !weights.empty() && weights != "auto";
}

constexpr const char* kMedian = "ms";

/// Returns the bits in which a GPU multiplies in the row's attention.
double bits_of(const Row& row) {
  return number_of(row, "arithmetic").value_or(8);
}

/// Returns true if a step has this mode and the settings of `like`. Weights count as equal if both or neither have 8
/// bits. With `by_topk`, the step must have a topk, with any value, in place of the bound of `like` on the error of
/// blocks.
bool is_alike(const Row& step, const Row& like, const std::string& mode, bool by_topk = false) {
  const auto same = [&](const std::string& key) {
    if (by_topk && (key == "topk" || key == "block_error")) return number_of(step, "topk").has_value();
    return step.value(key, Row()) == like.value(key, Row());
  };
  if (text_of(step, "mode") != mode || !text_of(step, "cache").empty() || is_reduced(step) != is_reduced(like))
    return false;
  if (mode != attention::name(attention::Mode::sparse)) return true;
  return same("token_order") && bits_of(step) == bits_of(like) &&
         std::ranges::all_of(selection_columns(), same, &Column::key);
}

/// Returns the step's time in the column `figure`, such as a quartile. If the report lacks that column, returns the
/// median, which is in the column "ms".
double time_of(const StepTimes::Step& step, const std::string& figure) {
  return number_of(step.row, figure).value_or(step.row["ms"].get<double>());
}

/// Adds the steps of the report that have a time to `times`.
void add_report(const std::string& file, StepTimes& times) {
  const nlohmann::json report = models::read_json(file, kRemedy);
  const size_t before = times.steps.size();
  try {
    times.summaries.push_back(run_summary(report));
    for (const Row& row : report.at("rows"))
      if (text_of(row, "stage") == kStepStage && number_of(row, "ms").value_or(0) > 0)
        times.steps.push_back({row, report.at("settings").at("layers").get<int64_t>(), file});
  } catch (const nlohmann::json::exception&) {
    throw bad_file(file, "is not a report of bench pipeline", kRemedy);
  }
  if (times.steps.size() == before) throw bad_file(file, "holds no step with a measured time", kRemedy);
}

}  // namespace

const StepTimes::Step* StepTimes::find(const Row& like, const char* mode) const {
  const auto found = std::ranges::find_if(steps, [&](const Step& step) { return is_alike(step.row, like, mode); });
  return found == steps.end() ? nullptr : &*found;
}

/// Returns a step that computes every block in the arithmetic of `like`: a step of mode quantized if there is one, or
/// else of mode full. For 16 bits it is always mode full, because computing all blocks in 16 bits takes about as long.
const StepTimes::Step* StepTimes::find_every_block(const Row& like) const {
  const Step* quantized = bits_of(like) == 16 ? nullptr : find(like, "quantized");
  return quantized == nullptr ? find(like, "full") : quantized;
}

ShareTimes StepTimes::by_share(const Row& like, const char* figure) const {
  ShareTimes times;
  for (const Step& step : steps) {
    if (!is_alike(step.row, like, "sparse", /*by_topk=*/true)) continue;
    const auto sparsity = number_of(step.row, "sparsity");
    times.points.push_back({sparsity ? 1 - *sparsity : *number_of(step.row, "topk"), time_of(step, figure)});
    times.layers = step.layers;
  }
  if (times.points.empty()) return times;
  if (const Step* all = find_every_block(like)) times.points.push_back({1, time_of(*all, figure)});
  std::ranges::sort(times.points, {}, &ShareTimes::Point::share);
  return times;
}

double ShareTimes::ms(double share) const {
  const auto above = std::ranges::find_if(points, [&](const Point& point) { return point.share >= share; });
  if (above == points.end()) return points.back().ms;
  if (above == points.begin() || above->share == share) return above->ms;
  const Point& below = *(above - 1);
  return below.ms + (share - below.share) / (above->share - below.share) * (above->ms - below.ms);
}

/// Fills the row's times from one column of the reports: "ms", or a quartile. For a quartile, the keys of the filled
/// fields get its ending. Returns false if no report has a step that is needed.
bool StepTimes::fill(Row& row, int64_t run_steps, const std::string& figure) const {
  const double dense = number_of(row, "computed_dense_steps").value_or(0), computed = *number_of(row, "computed_steps");
  ShareTimes own;
  if (number_of(row, "block_error")) {
    own = by_share(row, figure.c_str());
  } else if (const Step* step = find(row, text_of(row, "mode").c_str())) {
    own = {.points = {{1, time_of(*step, figure)}}, .layers = step->layers};
  }
  const Step *every_block = find_every_block(row), *full = find({{"weights", "auto"}}, "full");
  if (own.points.empty() || (dense > 0 && every_block == nullptr)) return false;
  const std::string ending = figure.substr(std::string(kMedian).size());
  const auto all = static_cast<double>(run_steps);
  // Exact steps are the first steps, which no preset's cache skips.
  const double exact = std::min(number_of(row, "exact_steps").value_or(0), computed);
  if (exact > 0 && full == nullptr) return false;
  const double own_ms = own.ms(number_of(row, "kept_share").value_or(1)), first = std::max(dense, exact);
  double sum = (computed - first) * own_ms;
  if (first > exact) sum += (first - exact) * time_of(*every_block, figure);
  if (exact > 0) sum += exact * time_of(*full, figure);
  row["step_ms" + ending] = sum / computed;
  row["denoise_seconds" + ending] = (sum + (all - computed) * own_ms / static_cast<double>(own.layers)) / 1000;
  if (full == nullptr) return true;
  row["full_step_ms" + ending] = time_of(*full, figure);
  row["full_denoise_seconds" + ending] = all * time_of(*full, figure) / 1000;
  return true;
}

void StepTimes::fill(Row& row, int64_t run_steps) const {
  if (number_of(row, "computed_steps").value_or(0) <= 0) return;
  for (const std::string figure : {kMedian, "ms_lower_quartile", "ms_upper_quartile"}) {
    const bool is_known = !steps.empty() && steps.front().row.contains(figure);
    if (is_known ? fill(row, run_steps, figure) : figure != kMedian) continue;
    const std::string note = text_of(row, "note"),
                      why = "no report of --times has a step like this row's: add it to that run of 'bench pipeline'";
    row["note"] = note.empty() ? why : note + "; " + why;
    return;
  }
}

StepTimes read_step_times(const std::vector<std::string>& files) {
  StepTimes times;
  for (const std::string& file : files) add_report(file, times);
  return times;
}

}  // namespace sparsereel::app::bench
