// What the sparse rows of a benchmark differ in: how many blocks are computed, how these are chosen, and what stands
// for the others.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/measure/table.h"
#include "attention/policies/policy.h"

namespace sparsereel::app::bench {

/// A row's selection. Everything is unset where it is not sparse.
struct SelectionCells {
  std::optional<double> topk, cdf, error_bound;  // at most one of them
  std::string dropped, select;
  std::optional<int64_t> cell;  // where there are means
};

SelectionCells cells_of(const attention::Policy& policy);
/// The same of a profile, whose heads differ in how many blocks they keep.
SelectionCells cells_of_profile(const attention::Policy& policy);

/// topk, cdf, error_bound, cell: numbers or null; dropped, select: texts or null.
nlohmann::json selection_fields(const SelectionCells& cells);

/// For titles and plots, of a row as JSON: "0.5", "0.5 means of 16 by error", "error 0.05 means of 16 by error"; empty
/// where it has no selection. value_name() is its first part: "0.5", "cdf 0.9", "error 0.05".
std::string selection_name(const nlohmann::json& row);
std::string value_name(const nlohmann::json& row);

/// What the selection of a row is comes from `cells`.
template <typename Row>
std::vector<Column<Row>> selection_columns(const std::function<SelectionCells(const Row&)>& cells) {
  return {
      Column<Row>::chosen("topk", "topk", [cells](const Row& row) { return cells(row).topk; }),
      Column<Row>::chosen("cdf", "cdf", [cells](const Row& row) { return cells(row).cdf; }),
      Column<Row>::chosen("error", "error_bound", [cells](const Row& row) { return cells(row).error_bound; }),
      Column<Row>::text("dropped", "dropped", [cells](const Row& row) { return cells(row).dropped; }),
      Column<Row>::text("select", "select", [cells](const Row& row) { return cells(row).select; }),
      Column<Row>::chosen("cell", "cell", [cells](const Row& row) { return cells(row).cell; }),
  };
}

}  // namespace sparsereel::app::bench
