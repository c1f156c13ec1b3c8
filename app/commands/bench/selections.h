// What the sparse rows of a benchmark differ in: how many blocks are computed, how these are chosen, and what stands
// for the others.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/columns.h"
#include "attention/policy.h"

namespace CLI {
class App;
}

namespace sparsereel::app::bench {

/// Comma lists as the command line gives them; unset: what the policy has.
struct SelectionLists {
  std::optional<std::string> topk, error, dropped, select, cell;

  /// The options that were given, as "--topk".
  std::vector<std::string> given() const;
};

/// --topk, --error, --dropped, --select and --cell; `topk_default` is what its help says of it.
void add_selection_lists(CLI::App& command, SelectionLists& lists, const std::string& group,
                         const std::string& topk_default);

/// `policy` with each combination of the lists, the methods in the outer loop. What asks for means brings them, as with
/// models::make_policy(). Throws Error naming the item that is out of range, or that no row can have beside the others.
std::vector<attention::Policy> combine(const SelectionLists& lists, const attention::Policy& policy);

/// A row's selection. Everything is unset where it is not sparse.
struct SelectionCells {
  std::optional<double> topk, error_bound;
  std::string dropped, select;
  std::optional<int64_t> cell;  // where there are means
};

SelectionCells cells_of(const attention::Policy& policy);
/// The same of a profile, whose heads differ in how many blocks they keep.
SelectionCells cells_of_profile(const attention::Policy& policy);

/// topk, error_bound, cell: numbers or null; dropped, select: texts or null.
nlohmann::json selection_fields(const SelectionCells& cells);

/// For titles and plots, of a row as JSON: "0.5", "0.5 means of 16 by error", "error 0.05 means of 16 by error"; empty
/// where it has no selection.
std::string selection_name(const nlohmann::json& row);

/// Of rows with a member `selection`.
template <typename Row>
std::vector<Column<Row>> selection_columns() {
  return {
      number_column<Row>("topk", "topk", 1, [](const Row& row) { return row.selection.topk; }),
      number_column<Row>("error", "error_bound", 1, [](const Row& row) { return row.selection.error_bound; }),
      text_column<Row>("dropped", "dropped", [](const Row& row) { return row.selection.dropped; }),
      text_column<Row>("select", "select", [](const Row& row) { return row.selection.select; }),
      text_column<Row>(
          "cell", "cell",
          [](const Row& row) { return row.selection.cell ? std::to_string(*row.selection.cell) : std::string(); }),
  };
}

}  // namespace sparsereel::app::bench
