// The columns of `bench attention`.
#include "app/commands/bench/attention_rows.h"

#include <algorithm>
#include <functional>

#include "app/measure/table.h"

namespace sparsereel::app::bench {
namespace {

using AttentionColumn = Column<Row>;
using AttentionColumns = std::vector<AttentionColumn>;

/// What the shape alone does not say: "causal", "226 text".
std::string traits(const Row& row) {
  std::string text = row.workload.causal ? "causal" : "";
  if (row.workload.captured()) text = row.workload.token_order + " order";
  if (row.workload.text_tokens > 0)
    text += (text.empty() ? "" : ", ") + std::to_string(row.workload.text_tokens) + " text";
  return text;
}

std::optional<double> prepass_percent(const Row& row) {
  if (!row.prepass_ms || !row.ms) return {};
  return 100 * *row.prepass_ms / row.ms->median;
}

AttentionColumns shared_columns() {
  AttentionColumns columns = {
      AttentionColumn::text("workload", "workload", [](const Row& row) { return row.workload.name; }),
      AttentionColumn::text("B,H,N,D", "shape", [](const Row& row) { return row.workload.shape.text(); }),
      AttentionColumn::text("mode", "mode", [](const Row& row) { return row.mode; }),
  };
  append(columns, selection_columns<Row>([](const Row& row) { return row.selection; }));
  const AttentionColumns more = {
      AttentionColumn::text("kernel", "kernel", [](const Row& row) { return row.kernel; }),
      AttentionColumn::text("dtype", "dtype", [](const Row& row) { return row.dtype; }),
      AttentionColumn::number("ms", "ms", 4, [](const Row& row) { return of_spread(row.ms, &Spread::median); }),
  };
  append(columns, more);
  return columns;
}

AttentionColumns figure_columns() {
  return {
      AttentionColumn::number("TOPS", "tops", 4, [](const Row& row) { return row.tops; }),
      AttentionColumn::number("% of limit", "limit_percent", 3, [](const Row& row) { return row.limit_percent; }),
      AttentionColumn::number("x dense", "speedup", 3, [](const Row& row) { return row.speedup; }),
      AttentionColumn::number("pre-pass ms", "prepass_ms", 3, [](const Row& row) { return row.prepass_ms; }),
      AttentionColumn::number("pre-pass %", "prepass_percent", 3, prepass_percent),
      AttentionColumn::number("sparsity", "sparsity", 3, [](const Row& row) { return row.sparsity; }),
      AttentionColumn::number("means", "mean_share", 3, [](const Row& row) { return row.mean_share; }),
      AttentionColumn::number("predicted", "predicted_error", 3, [](const Row& row) { return row.predicted_error; }),
      AttentionColumn::number("rel. L1", "rel_l1", 3, [](const Row& row) { return row.rel_l1; }),
      AttentionColumn::number("cosine", "cosine", 6, [](const Row& row) { return row.cosine; }),
      AttentionColumn::text("note", "note", [](const Row& row) { return row.note; }),
  };
}

AttentionColumns markdown_columns() {
  AttentionColumns columns = shared_columns();
  columns.insert(columns.begin() + 2, AttentionColumn::text("", "", traits));
  columns.push_back(AttentionColumn::text(
      "quartiles", "", [](const Row& row) { return row.ms ? quartiles_text(*row.ms) : std::string(); }));
  append(columns, figure_columns());
  return columns;
}

AttentionColumns csv_columns() {
  AttentionColumns columns = shared_columns();
  append(columns, spread_columns<Row>());
  append(columns, figure_columns());
  columns.push_back(AttentionColumn::text("", "device", [](const Row& row) { return row.device; }));
  columns.push_back(
      AttentionColumn::text("", "causal", [](const Row& row) { return row.workload.causal ? "1" : "0"; }));
  columns.push_back(AttentionColumn::text("", "text_tokens",
                                          [](const Row& row) { return std::to_string(row.workload.text_tokens); }));
  columns.push_back(AttentionColumn::text("", "token_order", [](const Row& row) { return row.workload.token_order; }));
  return columns;
}

nlohmann::json row_to_json(const Row& row) {
  const Shape& shape = row.workload.shape;
  nlohmann::json json = {{"mode", row.mode},
                         {"kernel", row.kernel},
                         {"shape", {shape.batch, shape.heads, shape.tokens, shape.head_dim}},
                         {"causal", row.workload.causal},
                         {"text_tokens", row.workload.text_tokens},
                         {"dtype", row.dtype},
                         {"device", row.device},
                         {"tops", or_null(row.tops)},
                         {"limit_percent", or_null(row.limit_percent)},
                         {"speedup", or_null(row.speedup)},
                         {"sparsity", or_null(row.sparsity)},
                         {"mean_share", or_null(row.mean_share)},
                         {"predicted_error", or_null(row.predicted_error)},
                         {"rel_l1", or_null(row.rel_l1)},
                         {"cosine", or_null(row.cosine)}};
  json.update(selection_fields(row.selection));
  json.update(spread_fields(row.ms));
  if (!row.workload.name.empty()) json["workload"] = row.workload.name;
  if (row.workload.captured()) json["token_order"] = row.workload.token_order;
  if (row.prepass_ms)
    json.update({{"prepass_ms", *row.prepass_ms}, {"prepass_percent", or_null(prepass_percent(row))}});
  if (!row.note.empty()) json["note"] = row.note;
  return json;
}

}  // namespace

void compare_with_dense(std::vector<Row>& rows) {
  std::optional<double> fastest;
  for (const Row& row : rows)
    if (row.mode == "full" && row.ms) fastest = std::min(fastest.value_or(row.ms->median), row.ms->median);
  for (Row& row : rows)
    if (fastest && row.ms && row.ms->median > 0) row.speedup = *fastest / row.ms->median;
}

std::string markdown(const std::vector<Row>& rows) {
  return markdown_of(rows, markdown_columns());
}

std::string csv(const std::vector<Row>& rows) {
  return csv_of(rows, csv_columns());
}

nlohmann::json to_json(const std::vector<Row>& rows) {
  nlohmann::json json = nlohmann::json::array();
  for (const Row& row : rows) json.push_back(row_to_json(row));
  return json;
}

}  // namespace sparsereel::app::bench
