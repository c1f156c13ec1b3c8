// Policies to cells and names.
#include "app/commands/bench/selections.h"

namespace sparsereel::app::bench {
namespace {

using attention::Dropped;
using attention::Policy;
using attention::Selection;

}  // namespace

SelectionCells cells_of_profile(const Policy& policy) {
  SelectionCells cells;
  cells.dropped = attention::name(policy.dropped);
  cells.select = attention::name(policy.ranking);
  if (policy.dropped == Dropped::mean) cells.cell = policy.cell;
  return cells;
}

SelectionCells cells_of(const Policy& policy) {
  SelectionCells cells = cells_of_profile(policy);
  if (policy.defaults.selection == Selection::topk) cells.topk = policy.defaults.topk;
  if (policy.defaults.selection == Selection::cdf) cells.cdf = policy.defaults.cdf;
  if (policy.defaults.selection == Selection::error) cells.error_bound = policy.defaults.error;
  return cells;
}

nlohmann::json selection_fields(const SelectionCells& cells) {
  return {{"topk", app::or_null(cells.topk)},
          {"cdf", app::or_null(cells.cdf)},
          {"error_bound", app::or_null(cells.error_bound)},
          {"dropped", or_null(cells.dropped)},
          {"select", or_null(cells.select)},
          {"cell", cells.cell ? nlohmann::json(*cells.cell) : nlohmann::json(nullptr)}};
}

std::string value_name(const nlohmann::json& row) {
  for (const auto& [key, word] : {std::pair("topk", ""), std::pair("cdf", "cdf "), std::pair("error_bound", "error ")})
    if (const auto value = number_of(row, key)) return word + chosen_text(*value);
  return {};
}

std::string selection_name(const nlohmann::json& row) {
  std::string name = value_name(row);
  if (text_of(row, "dropped") != attention::name(Dropped::mean)) return name;
  name += std::string(name.empty() ? "" : " ") + "means";
  if (const auto cell = number_of(row, "cell")) name += " of " + chosen_text(*cell);
  return name + " by " + text_of(row, "select");
}

}  // namespace sparsereel::app::bench
