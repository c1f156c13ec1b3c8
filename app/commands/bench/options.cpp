// From the command line's texts to a plan.
#include "app/commands/bench/options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "app/commands/bench/lists.h"
#include "app/options/nearest.h"
#include "app/options/settings.h"
#include "app/options/split.h"
#include "hilbert/error.h"
#include "models/weights/device.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;

constexpr const char* kHelp = "give one of them";

/// -1: as many as the model has.
int64_t parse_text_tokens(const std::string& text) {
  if (text == "model") return -1;
  int64_t tokens = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc{} || stop != text.data() + text.size() || tokens < 0)
    throw bad_input("--text-tokens " + text + " is no number of tokens",
                    did_you_mean(text, {"model"}, "give 0 or more, or 'model'"));
  return tokens;
}

std::vector<Workload> collect_workloads(const AttentionOptions& options) {
  std::vector<Workload> workloads;
  for (const std::string& list : options.workloads)
    for (const std::string& name : split(list, ',')) workloads.push_back(find_workload(name));
  for (const std::string& text : options.shapes)
    for (const Shape& shape : parse_shapes(text)) workloads.push_back({.name = {}, .shape = shape});
  if (workloads.empty() && options.captured.empty())
    throw bad_input("no shape to measure was given",
                    "name one with --workload (" + known_workloads().front().name + ", ...) or write --shape B,H,N,D");
  const std::string given_text = options.text_tokens.value_or("0");
  const int64_t text_tokens = parse_text_tokens(given_text);
  for (Workload& workload : workloads) {
    if (text_tokens >= 0) workload.text_tokens = text_tokens;
    if (text_tokens < 0 && workload.name.empty())
      throw bad_input("--text-tokens model says nothing about --shape " + workload.shape.text(),
                      "give a number of tokens, or --workload in place of the shape");
    workload.causal = workload.causal || options.causal;
    if (workload.text_tokens > workload.shape.tokens)
      throw bad_input("--text-tokens " + given_text + " is more than the " + std::to_string(workload.shape.tokens) +
                          " tokens of shape " + workload.shape.text(),
                      "give at most that many");
  }
  return workloads;
}

/// Options of what is made up mean nothing to what was captured, and the other way round.
void warn_of_data(const AttentionOptions& options, std::vector<std::string>& warnings) {
  if (options.token_orders && options.captured.empty())
    warnings.emplace_back("--token-order has no effect on made-up data");
  if (options.captured.empty() || !options.shapes.empty() || !options.workloads.empty()) return;
  for (const auto& [option, given] :
       {std::pair("--text-tokens", options.text_tokens.has_value()), std::pair("--data", options.data.has_value()),
        std::pair("--causal", options.causal)})
    if (given) warnings.push_back(std::string(option) + " has no effect on --captured alone");
}

/// Options of the block selection mean nothing where no contender selects blocks.
void warn_of_selection(const AttentionOptions& options, std::vector<std::string>& warnings) {
  std::vector<std::string> given = options.sparse.given();
  if (options.selection_rows) given.emplace_back("--selection-rows");
  if (options.similarity) given.emplace_back("--similarity");
  if (options.pv_threshold) given.emplace_back("--pv-threshold");
  for (const std::string& option : given) warnings.push_back(option + " has no effect with --modes " + options.modes);
}

/// A policy for each row of mode sparse.
Selections make_policies(const AttentionOptions& options) {
  attention::Policy policy;
  if (options.selection_rows) {
    const std::string rows = std::to_string(*options.selection_rows);
    require_choice("--selection-rows " + rows, rows, {"64", "128", "192"}, kHelp);
    policy.selection_rows = *options.selection_rows;
  }
  if (options.similarity) policy.defaults.similarity = *options.similarity;
  if (options.pv_threshold) policy.defaults.pv_threshold = *options.pv_threshold;
  SelectionLists lists = options.sparse;
  if (!lists.say_how_many_blocks()) lists.topk = kDefaultTopk;
  return combine(lists, policy);
}

DataKind parse_data(const std::string& text) {
  require_choice("--data " + text, text, {"gaussian", "structured", "smooth", "loud"}, kHelp);
  return text == "gaussian"     ? DataKind::gaussian
         : text == "structured" ? DataKind::structured
         : text == "smooth"     ? DataKind::smooth
                                : DataKind::loud;
}

}  // namespace

std::vector<Mode> parse_modes(const std::string& text) {
  std::vector<Mode> modes;
  for (const std::string& word : parse_words("--modes", text, {"full", "quantized", "sparse"}))
    modes.push_back(attention::parse_mode(word));
  return modes;
}

Format parse_format(const std::optional<std::string>& format, const std::string& output) {
  const std::string ending = std::filesystem::path(output).extension().string();
  const std::vector<std::string> known = {"", ".md", ".txt", ".csv", ".json"};
  if (!format && std::find(known.begin(), known.end(), ending) == known.end())
    throw bad_input("--output " + output + ": " + ending + " is no table's ending",
                    did_you_mean(ending, known, "use .md, .csv or .json, or say with --format what to write"));
  const std::string text = format.value_or(ending == ".csv" ? "csv" : ending == ".json" ? "json" : "md");
  require_choice("--format " + text, text, {"md", "csv", "json"}, kHelp);
  return text == "csv" ? Format::csv : text == "json" ? Format::json : Format::markdown;
}

bool AttentionPlan::has(Mode mode) const {
  return std::find(modes.begin(), modes.end(), mode) != modes.end();
}

AttentionPlan make_plan(const AttentionOptions& options) {
  check_range("--warmup", options.warmup, 0, 100'000);
  check_range("--turn", options.turn_ms, 0, 60'000);
  check_range("--repetitions", options.repetitions, 1, 100'000);
  check_range("--accuracy-rows", options.accuracy_rows, 0, 1 << 20);
  if (options.threads) models::check_threads(*options.threads);
  if (is_random_seed(options.seed))
    throw bad_input("--seed " + options.seed + ": figures are compared on the same data", "give a number");
  Settings given;
  given.add(Source::command_line, {{"device", options.device}, {"dtype", options.dtype}, {"seed", options.seed}});
  AttentionPlan plan;
  plan.seed = given.unsigned_whole("seed").value();
  plan.modes = parse_modes(options.modes);
  warn_of_data(options, plan.warnings);
  if (!options.captured.empty()) plan.orders = parse_orders(options.token_orders.value_or("hilbert"));
  plan.workloads = collect_workloads(options);
  Selections selections = make_policies(options);
  if (!plan.has(Mode::sparse)) {
    selections = {};
    warn_of_selection(options, plan.warnings);
  }
  plan.policies = std::move(selections.policies);
  plan.left_out = std::move(selections.left_out);
  plan.warnings.insert(plan.warnings.end(), selections.warnings.begin(), selections.warnings.end());
  plan.data = parse_data(options.data.value_or("gaussian"));
  plan.format = parse_format(options.format, options.output);
  return plan;
}

}  // namespace sparsereel::app::bench
