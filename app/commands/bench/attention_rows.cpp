// The columns of `bench attention`, and what a row has from the start.
#include "app/commands/bench/attention_rows.h"

#include <algorithm>

namespace sparsereel::app::bench {
namespace {

/// What the shape alone does not say: "causal", "226 text".
std::string traits(const Row& row) {
  std::string text = row.at("causal").get<bool>() ? "causal" : "";
  if (row.contains("token_order")) text = text_of(row, "token_order") + " order";
  if (row.at("text_tokens") > 0) text += (text.empty() ? "" : ", ") + row.at("text_tokens").dump() + " text";
  return text;
}

}  // namespace

Columns attention_columns() {
  return joined({Columns{{"workload", "workload"},
                         {"shape", "B,H,N,D"},
                         {.name = "", .title = "", .shown = Shown::to_people, .text = traits},
                         {"mode", "mode"}},
                 selection_columns(), Columns{{"kernel", "kernel"}, {"dtype", "dtype"}}, time_columns("ms"),
                 Columns{{"tops", "TOPS", 4},
                         {"limit_percent", "% of limit", 3},
                         {"speedup", "x dense", 3},
                         {"prepass_ms", "pre-pass ms", 3},
                         {"prepass_percent", "pre-pass %", 3},
                         {"sparsity", "sparsity", 3},
                         {"mean_share", "means", 3},
                         {"predicted_error", "predicted", 3},
                         {"rel_l1", "rel. L1", 3},
                         {"cosine", "cosine", 6},
                         {"note", "note"},
                         {"device", "", 0, Shown::in_csv},
                         {"causal", "", 0, Shown::in_csv},
                         {"text_tokens", "", 0, Shown::in_csv},
                         {"token_order", "", 0, Shown::in_csv}}});
}

Row attention_row(const Workload& workload, const std::string& mode, const attention::Policy* policy) {
  Row row = selection_fields(policy);
  for (const char* unknown :
       {"tops", "limit_percent", "speedup", "sparsity", "mean_share", "predicted_error", "rel_l1", "cosine"})
    row[unknown] = nullptr;
  row.update(time_fields({}));
  const Shape& shape = workload.shape;
  row.update({{"mode", mode},
              {"shape", {shape.batch, shape.heads, shape.tokens, shape.head_dim}},
              {"causal", workload.causal},
              {"text_tokens", workload.text_tokens}});
  if (!workload.name.empty()) row["workload"] = workload.name;
  if (workload.captured()) row["token_order"] = workload.token_order;
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

}  // namespace sparsereel::app::bench
