// The columns of `bench quality`.
#include "app/commands/bench/quality_rows.h"

#include <algorithm>

#include "app/measure/table.h"

namespace sparsereel::app::bench {
namespace {

using QualityColumn = Column<QualityRow>;
using QualityColumns = std::vector<QualityColumn>;
using Figure = std::optional<double> PromptFigures::*;

QualityColumn means(const std::string& title, const std::string& name, int digits, Figure figure) {
  return QualityColumn::number(title, name, digits, [figure](const QualityRow& row) { return row.mean(figure); });
}

/// Of combinations whose selection is the same for all heads.
std::optional<double> of_policy(const QualityRow& row, double value) {
  return row.combination.profile.empty() ? std::optional(value) : std::nullopt;
}

std::optional<double> speedup(const QualityRow& row) {
  return row.step_ms && row.full_step_ms ? std::optional(*row.full_step_ms / *row.step_ms) : std::nullopt;
}

std::optional<double> judged(const QualityRow& row) {
  const auto count = row.verdicts();
  return count ? std::optional(count->share()) : std::nullopt;
}

std::string judged_text(const QualityRow& row) {
  const auto count = row.verdicts();
  return count ? std::to_string(count->right) + " of " + std::to_string(count->prompts) : "";
}

/// A column for people that is empty where all rows say the same.
QualityColumn varying(const QualityColumn& column, const std::vector<QualityRow>& rows) {
  const auto text = [&](const QualityRow& row) { return column.cell(row, Style::people); };
  const bool differs =
      std::any_of(rows.begin(), rows.end(), [&](const QualityRow& row) { return text(row) != text(rows.front()); });
  return differs ? column
                 : QualityColumn::text(column.title, column.name, [](const QualityRow&) { return std::string(); });
}

std::string cache_text(const QualityRow& row) {
  return row.combination.cache.on() ? models::name(row.combination.cache) : "";
}

std::string mode_text(const QualityRow& row) {
  return row.combination.full ? "full" : "sparse";
}

QualityColumns method_columns() {
  QualityColumns columns =
      selection_columns<QualityRow>([](const QualityRow& row) { return row.combination.selection(); });
  columns.push_back(
      QualityColumn::text("profile", "profile", [](const QualityRow& row) { return row.combination.profile; }));
  return columns;
}

QualityColumns setting_columns() {
  const auto chosen = [](const char* title, const char* name, int64_t attention::Policy::*setting) {
    return QualityColumn::chosen(
        title, name, [setting](const QualityRow& row) { return std::optional(row.combination.policy.*setting); });
  };
  return {QualityColumn::text("mode", "mode", mode_text),
          chosen("rows", "selection_rows", &attention::Policy::selection_rows),
          QualityColumn::chosen(
              "similarity", "similarity",
              [](const QualityRow& row) { return of_policy(row, row.combination.policy.defaults.similarity); }),
          chosen("dense steps", "dense_steps", &attention::Policy::dense_steps),
          QualityColumn::text("order", "token_order",
                              [](const QualityRow& row) { return std::string(name(row.combination.order)); }),
          QualityColumn::text("cache", "cache", [](const QualityRow& row) { return cache_text(row); }),
          QualityColumn::number("computed", "computed_steps", 3, [](const QualityRow& row) {
            return row.prompts.empty() ? std::nullopt : std::optional(row.mean(&PromptFigures::computed_steps));
          })};
}

QualityColumns prompt_figure_columns() {
  return {means("PSNR dB", "psnr", 3, &PromptFigures::psnr),
          QualityColumn::number("lowest", "psnr_lowest", 3, [](const QualityRow& row) { return row.lowest_psnr(); }),
          means("SSIM", "ssim", 4, &PromptFigures::ssim),
          means("rel. L1", "rel_l1", 3, &PromptFigures::rel_l1),
          means("predicted", "predicted_error", 3, &PromptFigures::predicted_error),
          QualityColumn::number("sparsity", "sparsity", 3,
                                [](const QualityRow& row) {
                                  return row.prompts.empty() ? std::nullopt
                                                             : std::optional(row.mean(&PromptFigures::sparsity));
                                }),
          QualityColumn::number("means' cost", "mean_share", 2, [](const QualityRow& row) {
            return row.prompts.empty() || !row.combination.has_means()
                       ? std::nullopt
                       : std::optional(row.mean(&PromptFigures::mean_share));
          })};
}

QualityColumns time_columns() {
  return {QualityColumn::number("ms a step", "step_ms", 4, [](const QualityRow& row) { return row.step_ms; }),
          QualityColumn::number("full, ms", "full_step_ms", 4, [](const QualityRow& row) { return row.full_step_ms; }),
          QualityColumn::number("x full", "speedup", 3, speedup)};
}

nlohmann::json traits_json(const Verdict& verdict) {
  nlohmann::json json = nlohmann::json::object();
  for (size_t trait = 0; trait < kTraits; ++trait)
    if (verdict.tells(trait)) json[std::string(kTraitNames.at(trait))] = verdict.right(trait);
  return json;
}

nlohmann::json to_json(const PromptFigures& figures) {
  nlohmann::json json = {{"prompt", figures.prompt},
                         {"psnr", or_null(figures.psnr)},
                         {"ssim", or_null(figures.ssim)},
                         {"rel_l1", or_null(figures.rel_l1)},
                         {"predicted_error", or_null(figures.predicted_error)},
                         {"sparsity", figures.sparsity},
                         {"mean_share", figures.mean_share},
                         {"computed_steps", figures.computed_steps}};
  if (figures.verdict) json["judge"] = traits_json(*figures.verdict);
  return json;
}

nlohmann::json to_json(const QualityRow& row) {
  const attention::Policy& policy = row.combination.policy;
  const bool measured = !row.prompts.empty();
  nlohmann::json json = {
      {"profile", row.combination.profile.empty() ? nlohmann::json() : nlohmann::json(row.combination.profile)},
      {"selection_rows", policy.selection_rows},
      {"similarity", or_null(of_policy(row, policy.defaults.similarity))},
      {"dense_steps", policy.dense_steps},
      {"token_order", hilbert::name(row.combination.order)},
      {"mode", mode_text(row)},
      {"cache", row.combination.cache.on() ? nlohmann::json(cache_text(row)) : nlohmann::json()},
      {"computed_steps", measured ? nlohmann::json(row.mean(&PromptFigures::computed_steps)) : nlohmann::json()},
      {"psnr", or_null(row.mean(&PromptFigures::psnr))},
      {"psnr_lowest", or_null(row.lowest_psnr())},
      {"ssim", or_null(row.mean(&PromptFigures::ssim))},
      {"rel_l1", or_null(row.mean(&PromptFigures::rel_l1))},
      {"predicted_error", or_null(row.mean(&PromptFigures::predicted_error))},
      {"sparsity", measured ? nlohmann::json(row.mean(&PromptFigures::sparsity)) : nlohmann::json()},
      {"mean_share", measured ? nlohmann::json(row.mean(&PromptFigures::mean_share)) : nlohmann::json()},
      {"step_ms", or_null(row.step_ms)},
      {"full_step_ms", or_null(row.full_step_ms)},
      {"speedup", or_null(speedup(row))},
      {"judge", or_null(judged(row))},
      {"kernel", row.kernel},
      {"prompts", nlohmann::json::array()}};
  json.update(selection_fields(row.combination.selection()));
  if (const auto count = row.verdicts()) json["judge_counts"] = verdict_json(*count);
  if (!row.note.empty()) json["note"] = row.note;
  for (const PromptFigures& figures : row.prompts) json["prompts"].push_back(to_json(figures));
  return json;
}

}  // namespace

std::optional<double> QualityRow::mean(std::optional<double> PromptFigures::*figure) const {
  double sum = 0;
  int64_t count = 0;
  for (const PromptFigures& each : prompts) {
    sum += (each.*figure).value_or(0);
    count += (each.*figure).has_value() ? 1 : 0;
  }
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

double QualityRow::mean(double PromptFigures::*figure) const {
  double sum = 0;
  for (const PromptFigures& each : prompts) sum += each.*figure;
  return prompts.empty() ? 0 : sum / static_cast<double>(prompts.size());
}

std::optional<double> QualityRow::lowest_psnr() const {
  std::optional<double> lowest;
  for (const PromptFigures& each : prompts)
    if (each.psnr) lowest = std::min(lowest.value_or(*each.psnr), *each.psnr);
  return lowest;
}

std::optional<VerdictCount> QualityRow::verdicts() const {
  VerdictCount count;
  for (const PromptFigures& each : prompts)
    if (each.verdict) count.add(*each.verdict);
  return count.prompts > 0 ? std::optional(count) : std::nullopt;
}

nlohmann::json verdict_json(const VerdictCount& count) {
  nlohmann::json json = {{"prompts", count.prompts}, {"right", count.right}};
  for (size_t trait = 0; trait < kTraits; ++trait)
    json[std::string(kTraitNames.at(trait))] = {count.trait_right.at(trait), count.told.at(trait)};
  return json;
}

std::string quality_markdown(const std::vector<QualityRow>& rows) {
  QualityColumns columns = method_columns();
  for (const QualityColumn& column : setting_columns()) columns.push_back(varying(column, rows));
  append(columns, prompt_figure_columns());
  append(columns, time_columns());
  columns.push_back(QualityColumn::text("judge", "", judged_text));
  columns.push_back(QualityColumn::text("note", "", [](const QualityRow& row) { return row.note; }));
  return markdown_of(rows, columns);
}

std::string quality_csv(const std::vector<QualityRow>& rows) {
  QualityColumns columns = method_columns();
  append(columns, setting_columns());
  append(columns, prompt_figure_columns());
  append(columns, time_columns());
  columns.push_back(QualityColumn::number("", "judge", 0, judged));
  columns.push_back(QualityColumn::text("", "kernel", [](const QualityRow& row) { return row.kernel; }));
  columns.push_back(QualityColumn::text("", "note", [](const QualityRow& row) { return row.note; }));
  return csv_of(rows, columns);
}

nlohmann::json quality_json(const std::vector<QualityRow>& rows) {
  nlohmann::json json = nlohmann::json::array();
  for (const QualityRow& row : rows) json.push_back(to_json(row));
  return json;
}

}  // namespace sparsereel::app::bench
