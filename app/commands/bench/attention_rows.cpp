// The columns of `bench attention`; see attention_rows.h.
#include "app/commands/bench/attention_rows.h"

#include <algorithm>
#include <functional>

#include "app/measure/table.h"

namespace sparsereel::app::bench {
namespace {

using Columns = std::vector<Column<Row>>;

Column<Row> number_column(const std::string& title, const std::string& name, int digits,
                          const std::function<std::optional<double>(const Row&)>& value) {
  return app::number_column<Row>(title, name, digits, value);
}

Column<Row> text_column(const std::string& title, const std::string& name,
                        const std::function<std::string(const Row&)>& value) {
  return app::text_column<Row>(title, name, value);
}

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

std::string quartiles(const Row& row) {
  if (!row.ms) return {};
  return number_text(row.ms->lower_quartile, 4, Style::people) + "-" +
         number_text(row.ms->upper_quartile, 4, Style::people);
}

Columns shared_columns() {
  Columns columns = {
      text_column("workload", "workload", [](const Row& row) { return row.workload.name; }),
      text_column("B,H,N,D", "shape", [](const Row& row) { return row.workload.shape.text(); }),
      text_column("mode", "mode", [](const Row& row) { return row.mode; }),
  };
  for (Column<Row>& column : selection_columns<Row>([](const Row& row) { return row.selection; }))
    columns.push_back(std::move(column));
  const Columns more = {
      text_column("kernel", "kernel", [](const Row& row) { return row.kernel; }),
      text_column("dtype", "dtype", [](const Row& row) { return row.dtype; }),
      number_column("ms", "ms", 4, [](const Row& row) { return of_spread(row.ms, &Spread::median); }),
  };
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

Columns figure_columns() {
  return {
      number_column("TOPS", "tops", 4, [](const Row& row) { return row.tops; }),
      number_column("% of limit", "limit_percent", 3, [](const Row& row) { return row.limit_percent; }),
      number_column("x dense", "speedup", 3, [](const Row& row) { return row.speedup; }),
      number_column("pre-pass ms", "prepass_ms", 3, [](const Row& row) { return row.prepass_ms; }),
      number_column("pre-pass %", "prepass_percent", 3, prepass_percent),
      number_column("sparsity", "sparsity", 3, [](const Row& row) { return row.sparsity; }),
      number_column("means", "mean_share", 3, [](const Row& row) { return row.mean_share; }),
      number_column("predicted", "predicted_error", 3, [](const Row& row) { return row.predicted_error; }),
      number_column("rel. L1", "rel_l1", 3, [](const Row& row) { return row.rel_l1; }),
      number_column("cosine", "cosine", 6, [](const Row& row) { return row.cosine; }),
      text_column("note", "note", [](const Row& row) { return row.note; }),
  };
}

Columns markdown_columns() {
  Columns columns = shared_columns();
  columns.insert(columns.begin() + 2, text_column("", "", traits));
  columns.push_back(text_column("quartiles", "", quartiles));
  for (Column<Row>& column : figure_columns()) columns.push_back(std::move(column));
  return columns;
}

Columns csv_columns() {
  Columns columns = shared_columns();
  for (Column<Row>& column : spread_columns<Row>()) columns.push_back(std::move(column));
  for (Column<Row>& column : figure_columns()) columns.push_back(std::move(column));
  columns.push_back(text_column("", "device", [](const Row& row) { return row.device; }));
  columns.push_back(text_column("", "causal", [](const Row& row) { return row.workload.causal ? "1" : "0"; }));
  columns.push_back(
      text_column("", "text_tokens", [](const Row& row) { return std::to_string(row.workload.text_tokens); }));
  columns.push_back(text_column("", "token_order", [](const Row& row) { return row.workload.token_order; }));
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
