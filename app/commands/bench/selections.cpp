// Lists to policies, and policies to cells; see selections.h.
#include "app/commands/bench/selections.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "app/commands/bench/options.h"
#include "app/nearest.h"
#include "app/settings.h"
#include "app/split.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

using attention::Dropped;
using attention::HeadPolicy;
using attention::Policy;
using attention::Ranking;
using attention::Selection;

std::vector<double> parse_errors(const std::string& text) {
  std::vector<double> values;
  for (const std::string& item : split(text, ',')) {
    double value = 0;
    const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc{} || stop != item.data() + item.size() || !(value > 0) || !std::isfinite(value))
      throw bad_input(at_item("--error", text, item) + " is no number above 0",
                      "give bounds of the predicted error, e.g. --error 0.02,0.05,0.1");
    values.push_back(value);
  }
  return values;
}

/// Each item once; `value_of` makes it what it means.
template <typename Value, typename ValueOf>
std::vector<Value> parse_choices(const std::string& key, const std::string& text, const ValueOf& value_of) {
  const OptionSpec& spec = *find_option(key);
  std::vector<Value> values;
  for (const std::string& item : split(text, ',')) {
    require_choice(at_item("--" + key, text, item), item, spec.choices, "give one or more of them");
    const Value value = value_of(item);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

template <typename Value>
bool contains(const std::vector<Value>& values, Value value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

[[noreturn]] void refuse_both(const char* first, const char* second) {
  throw bad_input(std::string(first) + " and " + second + " exclude each other", "give one of them");
}

std::vector<Dropped> dropped_of(const SelectionLists& lists, const std::vector<Ranking>& rankings,
                                const Policy& policy) {
  if (lists.dropped) return parse_choices<Dropped>("dropped", *lists.dropped, attention::parse_dropped);
  return {lists.error || contains(rankings, Ranking::error) ? Dropped::mean : policy.dropped};
}

/// Empty: what goes with each `dropped`.
std::vector<Ranking> rankings_of(const SelectionLists& lists) {
  if (lists.select) return parse_choices<Ranking>("select", *lists.select, attention::parse_ranking);
  return lists.error ? std::vector{Ranking::error} : std::vector<Ranking>{};
}

/// An item that would be in no row.
void refuse_items_without_row(const SelectionLists& lists, const std::vector<Dropped>& dropped,
                              const std::vector<Ranking>& rankings) {
  const bool by_error = contains(rankings, Ranking::error), by_mass = contains(rankings, Ranking::mass);
  if (lists.error && by_mass) refuse_both("--select mass", "--error");
  if (lists.error && contains(dropped, Dropped::none)) refuse_both("--dropped none", "--error");
  const bool none_left_out = contains(dropped, Dropped::none) && by_error && !by_mass;
  const bool error_left_out = by_error && !contains(dropped, Dropped::mean);
  if (none_left_out || error_left_out) refuse_both("--dropped none", "--select error");
  if (lists.cell && !contains(dropped, Dropped::mean))
    throw bad_input("--cell " + *lists.cell + " has no effect with --dropped none, which has no means",
                    "leave it out, or add mean to --dropped");
}

/// What stands for dropped blocks and what they are ranked by.
std::vector<Policy> methods(const SelectionLists& lists, const Policy& policy) {
  const std::vector<Ranking> rankings = rankings_of(lists);
  const std::vector<Dropped> dropped = dropped_of(lists, rankings, policy);
  refuse_items_without_row(lists, dropped, rankings);
  std::vector<int64_t> cells = {policy.cell};
  if (lists.cell)
    cells = parse_choices<int64_t>("cell", *lists.cell, [](const std::string& item) { return std::stoll(item); });
  std::vector<Policy> result;
  for (const Dropped each : dropped) {
    const Ranking usual = lists.dropped ? attention::usual_ranking(each) : policy.ranking;
    for (const Ranking ranking : rankings.empty() ? std::vector{usual} : rankings) {
      if (each == Dropped::none && ranking == Ranking::error) continue;
      for (const int64_t cell : each == Dropped::mean ? cells : std::vector{policy.cell}) {
        result.push_back(policy);
        result.back().dropped = each;
        result.back().ranking = ranking;
        result.back().cell = cell;
      }
    }
  }
  return result;
}

/// How many blocks are kept.
std::vector<HeadPolicy> amounts(const SelectionLists& lists, const HeadPolicy& head) {
  if (lists.topk && lists.error) refuse_both("--topk", "--error");
  std::vector<HeadPolicy> result;
  const auto add = [&](Selection selection, double HeadPolicy::*field, double value) {
    result.push_back(head);
    result.back().selection = selection;
    result.back().*field = value;
  };
  if (lists.topk)
    for (const double value : parse_fractions(*lists.topk)) add(Selection::topk, &HeadPolicy::topk, value);
  if (lists.error)
    for (const double value : parse_errors(*lists.error)) add(Selection::error, &HeadPolicy::error, value);
  return result.empty() ? std::vector{head} : result;
}

nlohmann::json or_null(const std::string& text) {
  return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
}

std::string text_of(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::vector<std::string> SelectionLists::given() const {
  std::vector<std::string> names;
  const std::pair<const char*, bool> all[] = {{"--topk", topk.has_value()},
                                              {"--error", error.has_value()},
                                              {"--dropped", dropped.has_value()},
                                              {"--select", select.has_value()},
                                              {"--cell", cell.has_value()}};
  for (const auto& [name, set] : all)
    if (set) names.emplace_back(name);
  return names;
}

void add_selection_lists(CLI::App& command, SelectionLists& lists, const std::string& group,
                         const std::string& topk_default) {
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    command.add_option(name, value, help)->type_name(type)->group(group);
  };
  const auto list_of = [](const char* key) { return "comma list: " + find_option(key)->help; };
  add("--topk", lists.topk,
      "comma list: of mode sparse, fractions of the key blocks computed (default " + topk_default + ")", "X,X");
  add("--error", lists.error, list_of("error"), "X,X");
  add("--dropped", lists.dropped, list_of("dropped"), "mean,none");
  add("--select", lists.select, list_of("select"), "error,mass");
  add("--cell", lists.cell, list_of("cell"), "16,32,64");
}

std::vector<Policy> combine(const SelectionLists& lists, const Policy& policy) {
  std::vector<Policy> result;
  const std::vector<HeadPolicy> heads = amounts(lists, policy.defaults);
  for (const Policy& method : methods(lists, policy)) {
    for (const HeadPolicy& head : heads) {
      result.push_back(method);
      result.back().defaults = head;
      if (head.selection == Selection::error && method.ranking == Ranking::mass)  // policy's own; lists were checked
        result.back().defaults.selection = Selection::topk;
      attention::validate(result.back());
    }
  }
  return result;
}

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
  if (policy.defaults.selection == Selection::error) cells.error_bound = policy.defaults.error;
  return cells;
}

nlohmann::json selection_fields(const SelectionCells& cells) {
  return {{"topk", bench::or_null(cells.topk)},
          {"error_bound", bench::or_null(cells.error_bound)},
          {"dropped", or_null(cells.dropped)},
          {"select", or_null(cells.select)},
          {"cell", cells.cell ? nlohmann::json(*cells.cell) : nlohmann::json(nullptr)}};
}

std::string selection_name(const nlohmann::json& row) {
  std::string name;
  if (const auto topk = number_of(row, "topk")) name = nlohmann::json(*topk).dump();
  if (const auto error = number_of(row, "error_bound")) name = "error " + nlohmann::json(*error).dump();
  if (text_of(row, "dropped") != attention::name(Dropped::mean)) return name;
  name += std::string(name.empty() ? "" : " ") + "means";
  if (const auto cell = number_of(row, "cell")) name += " of " + std::to_string(static_cast<int64_t>(*cell));
  return name + " by " + text_of(row, "select");
}

}  // namespace sparsereel::app::bench
