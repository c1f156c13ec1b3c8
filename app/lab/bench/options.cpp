// Turns the command line's texts into a plan.
#include "app/lab/bench/options.h"

#include <algorithm>

#include "app/options/nearest.h"
#include "app/options/option_group.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/request/request.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;

constexpr const char* kHelp = "give one of them";
constexpr const char* kDefaultTopk = "0.5,0.3,0.1";  // used if no list says how many blocks to compute

/// Returns -1 for as many as the model has.
int64_t parse_text_tokens(const std::string& text) {
  if (text == "model") return -1;
  const int64_t tokens = parse_number<int64_t>(text).value_or(-1);
  if (tokens < 0)
    throw bad_input("--text-tokens " + text + " is not a number of tokens",
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
      throw bad_input("--text-tokens model has no number for --shape " + workload.shape.text(),
                      "give a number of tokens, or --workload instead of the shape");
    workload.causal = workload.causal || options.causal;
    if (workload.text_tokens > workload.shape.tokens)
      throw bad_input("--text-tokens " + given_text + " is more than the " + std::to_string(workload.shape.tokens) +
                          " tokens of shape " + workload.shape.text(),
                      "give at most that many");
  }
  return workloads;
}

/// Warns of options for synthetic data given with captured data only, and the other way round.
void warn_of_data(const AttentionOptions& options, std::vector<std::string>& warnings) {
  if (options.token_orders && options.captured.empty())
    warnings.emplace_back("--token-order has no effect on made-up data");
  if (options.captured.empty() || !options.shapes.empty() || !options.workloads.empty()) return;
  for (const auto& [option, given] :
       {std::pair("--text-tokens", options.text_tokens.has_value()), std::pair("--data", options.data.has_value()),
        std::pair("--causal", options.causal)})
    if (given) warnings.push_back(std::string(option) + " has no effect on --captured alone");
}

DataKind parse_data(const std::string& text) {
  static const std::vector<std::string> names = {"gaussian", "structured", "smooth", "loud"};  // in DataKind's order
  require_choice("--data " + text, text, names, kHelp);
  return static_cast<DataKind>(std::ranges::find(names, text) - names.begin());
}

/// Returns the rows of mode sparse; without them, the options of the selection have no effect.
Grid make_grid(const AttentionOptions& options, const Settings& given, const std::vector<Mode>& modes) {
  Lists lists = options.lists;
  if (const auto& rows = options.selection_rows) {
    require_choice("--selection-rows " + *rows, *rows, {"64", "128", "192"}, kHelp);
    lists["selection_rows"] = rows;
  }
  const bool sparse = std::ranges::find(modes, Mode::sparse) != modes.end();
  const bool chosen =
      std::ranges::any_of(models::kSelectionNames, [&](const char* key) { return is_given(lists, key); });
  if (sparse && !chosen) lists["topk"] = kDefaultTopk;
  Grid grid = expand(given, lists, {.modes = modes});
  for (const char* key : {"similarity", "pv_threshold"})
    if (!sparse && given.has(key))
      grid.warnings.push_back(option_name(key) + " has no effect with --modes " + options.modes);
  std::erase_if(grid.combinations, [](const Combination& each) { return !each.sparse(); });
  return grid;
}

}  // namespace

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
    throw bad_input("--seed " + options.seed + ": the same data must be made for every figure", "give a number");
  Settings given;
  given.add(Source::command_line, {{"device", options.device}, {"dtype", options.dtype}, {"seed", options.seed}});
  for (const auto& [key, value] : {std::pair("similarity", options.similarity), {"pv_threshold", options.pv_threshold}})
    if (value) given.add(Source::command_line, {{key, *value}});
  AttentionPlan plan;
  plan.seed = given.unsigned_whole("seed").value();
  plan.modes = parse_modes(options.modes, {"full", "quantized", "sparse"});
  warn_of_data(options, plan.warnings);
  if (!options.captured.empty()) plan.orders = parse_orders(options.token_orders.value_or("hilbert"));
  plan.workloads = collect_workloads(options);
  plan.grid = make_grid(options, given, plan.modes);
  plan.warnings.insert(plan.warnings.end(), plan.grid.warnings.begin(), plan.grid.warnings.end());
  plan.data = parse_data(options.data.value_or(kUsualData));
  return plan;
}

void add_options(CLI::App& command, AttentionOptions& options) {
  const OptionGroup what(command, "What to measure");
  std::string names;
  for (const Workload& workload : known_workloads()) names += " " + workload.name;
  what.add("--shape", options.shapes,
           "B,H,N,D: batch, heads, tokens, head_dim, H/K for K heads of k and v; repeatable, or separated by ;",
           "B,H,N,D");
  what.add("--workload", options.workloads, "the attention of known models, comma list of:" + names, "NAMES");
  what.add("--captured", options.captured,
           "q, k and v of a run's attention, as tests/bench/capture_attention writes them", "FILE");
  what.add("--token-order", options.token_orders,
           "of --captured: comma list of hilbert, native, time-major, morton, random (default hilbert)", "ORDERS");
  what.add("--modes", options.modes, "comma list (default full,quantized,sparse)", "MODES");
  what.add("--text-tokens", options.text_tokens, "the last N tokens are text, always dense; or 'model' (default 0)",
           "N");
  what.flag("--causal", options.causal, "token i sees tokens up to i");
  const OptionGroup selection(command, "Block selection of mode sparse");
  add_selection_lists(selection, options.lists, kDefaultTopk);
  selection.add("--selection-rows", options.selection_rows,
                "queries that share one selection (default " + std::to_string(attention::Policy{}.selection_rows) + ")",
                "64,128,192");
  selection.add("--similarity", options.similarity, find_option("similarity")->help, "X");
  selection.add("--pv-threshold", options.pv_threshold, find_option("pv_threshold")->help, "X");
  const OptionGroup measuring(command, "Measuring");
  measuring.add("--device", options.device, "where it runs (default auto)", "auto,cpu,cuda,cuda:N");
  measuring.add("--dtype", options.dtype, "arithmetic (default auto: bf16 on a GPU, fp32 on a CPU)",
                "auto,fp32,bf16,fp16");
  measuring.add("--threads", options.threads, "CPU threads (default: all cores)", "N");
  measuring.add("--data", options.data,
                "plain, like a trained model's (default), that with slow values, or loud channels",
                "gaussian,structured,smooth,loud");
  measuring.add("-s,--seed", options.seed, "seed of the data (default 42)", "N");
  measuring.add("--warmup", options.warmup, "rounds that do not count (default 5, on a CPU 1)", "N");
  measuring.add("--repetitions", options.repetitions, "rounds that count (default 20, on a CPU 5)", "N");
  measuring.add("--turn", options.turn_ms,
                "a contender's turn in a round, in milliseconds, its later half counts; 0: one call (default 0)", "MS");
  measuring.add("--accuracy-rows", options.accuracy_rows,
                "queries compared with exact attention; 0: none (default 256, of --captured all)", "N");
  const OptionGroup output(command, "Output and reports");
  add_table_options(output, options.table);
  output.add("--report", options.report, "write a JSON report of the run", "FILE");
  output.flag("--quiet", options.quiet, "no progress bar");
  output.flag("--json", options.json, "print the report on stdout in place of the table");
}

}  // namespace sparsereel::app::bench
