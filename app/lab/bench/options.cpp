// Turns the options of `bench attention` into a plan.
#include "app/lab/bench/options.h"

#include <algorithm>

#include "app/lab/bench/list_options.h"
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
constexpr const char* kDefaultTopk = "0.5,0.3,0.1";  // the default if no list says how many blocks are computed

/// Returns the number of text tokens. Returns -1 for "model", which means as many as the workload's model has.
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
                    "name one with --workload (" + known_workloads().front().name +
                        ", ...) or write batch,heads,tokens,head_dim: --shape 1,4,2336,64");
  const std::string given_text = options.text_tokens.value_or("0");
  const int64_t text_tokens = parse_text_tokens(given_text);
  for (Workload& workload : workloads) {
    if (text_tokens >= 0) workload.text_tokens = text_tokens;
    if (text_tokens < 0 && workload.name.empty())
      throw bad_input("--text-tokens model: no model belongs to --shape " + workload.shape.text(),
                      "give a number of tokens, or give --workload instead of --shape");
    workload.causal = workload.causal || options.causal;
    if (workload.text_tokens > workload.shape.tokens)
      throw bad_input("--text-tokens " + given_text + " is more than the " + std::to_string(workload.shape.tokens) +
                          " tokens of shape " + workload.shape.text(),
                      "give at most that many");
  }
  return workloads;
}

/// Warns about options of synthetic data if all data are captured, and about options of captured data if no data are
/// captured.
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

/// Returns the rows of mode sparse. If --modes leaves out that mode, adds warnings that the options of block selection
/// have no effect.
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

namespace {

constexpr const char* kShape = "sparsereel bench attention --shape 1,4,2336,64 ";  // begins the examples

/// Adds the options that say which tensors are measured.
void add_inputs(const OptionGroup& group, AttentionOptions& options) {
  group.add("--shape", options.shapes,
            {.help = "batch, heads, tokens and head_dim; repeat it, or separate by ;",
             .manual = R"(Sets the shape of the tensors: batch, heads, tokens, head_dim. H/K in place of H means that
                 H heads of q share K heads of k and v. Separate several shapes by semicolons, or repeat the option.)",
             .example = "sparsereel bench attention --shape 1,4,2336,64"},
            "B,H,N,D");
  std::string names;
  for (const Workload& workload : known_workloads()) names += (names.empty() ? "" : ", ") + workload.name;
  group.add("--workload", options.workloads,
            {.help = "shapes of known models, a comma list of " + names,
             .manual = "Measures the shapes that attention has in known models. Give a comma list of: " + names + ".",
             .example = "sparsereel bench attention --workload " + known_workloads().front().name},
            "NAMES");
  group.add(
      "--captured", options.captured,
      {.help = "measure q, k and v that a run has kept in this file",
       .manual = R"(Measures q, k and v of a real run, which tests/bench/capture_attention writes into the file. The
           errors are then those of a trained model.)",
       .example = "sparsereel bench attention --captured qkv.safetensors",
       .in_help = InHelp::all},
      "FILE");
  group.add("--token-order", options.token_orders,
            {.help = "comma list: token orders of --captured (default hilbert)",
             .manual = R"(Takes a comma list of hilbert, native, time-major, morton and random, and measures
                 --captured with its tokens in each of these orders. Made-up data have no order.)",
             .example = "sparsereel bench attention --captured qkv.safetensors --token-order hilbert,native",
             .in_help = InHelp::research},
            "ORDERS");
  group.add(
      "--modes", options.modes,
      {.help = "comma list of methods (default full,quantized,sparse)",
       .manual = R"(Chooses the methods to measure: a comma list of full, quantized and sparse. Methods that the list
           does not name are not measured.)",
       .example = std::string(kShape) + "--modes full,sparse"},
      "MODES");
}

/// Adds the options that change what attention computes on these tensors.
void add_masks(const OptionGroup& group, AttentionOptions& options) {
  group.add("--text-tokens", options.text_tokens,
            {.help = "how many of the last tokens are text (default 0)",
             .manual = R"(Says that the last N tokens are text, whose blocks are always computed. With --workload, the
                 word model stands for the number that the model has.)",
             .example = std::string(kShape) + "--text-tokens 226",
             .in_help = InHelp::all},
            "N");
  group.flag("--causal", options.causal,
             {.help = "let each token attend to itself and earlier tokens only",
              .manual = "Lets token i attend to tokens up to i, as language models do. Video models do not need it.",
              .example = std::string(kShape) + "--causal",
              .in_help = InHelp::all});
}

void add_selection(CLI::App& command, AttentionOptions& options) {
  const OptionGroup group(command, "Block selection of mode sparse");
  add_selection_lists(group, options.lists, "bench attention --shape 1,4,2336,64", kDefaultTopk);
  const std::string rows = std::to_string(attention::Policy{}.selection_rows);
  group.add("--selection-rows", options.selection_rows,
            {.help = "queries that share one choice of blocks (default " + rows + ")",
             .manual = R"(Sets how many queries share one choice of blocks. With fewer queries, the choice is finer
                 and takes longer. The default is )" +
                       rows + ".",
             .example = std::string(kShape) + "--topk 0.3 --selection-rows 64",
             .in_help = InHelp::research},
            "64,128,192");
  for (const auto& [key, value] :
       {std::pair("similarity", &options.similarity), {"pv_threshold", &options.pv_threshold}}) {
    const OptionSpec& option = *find_option(key);
    group.add(option_name(key).c_str(), *value,
              {.help = option.help,
               .manual = option.manual,
               .example = std::string(kShape) + "--topk 0.3 " + option_name(key) + " " +
                          (value == &options.similarity ? "0.5" : "12"),
               .in_help = InHelp::research},
              "X");
  }
}

/// Adds the options of the machine and of synthetic ("made-up") data.
void add_machine(const OptionGroup& group, AttentionOptions& options) {
  group.add("--device", options.device,
            {.help = "where it runs (default auto)",
             .manual = "Chooses where it runs. auto takes the first GPU if one is usable, else the CPU.",
             .example = std::string(kShape) + "--device cpu"},
            "auto,cpu,cuda,cuda:N");
  group.add("--dtype", options.dtype,
            {.help = "number format (default auto: bf16 on a GPU, fp32 on a CPU)",
             .manual = "Sets the number format of the tensors. auto is bf16 on a GPU and fp32 on a CPU.",
             .example = std::string(kShape) + "--dtype fp16"},
            "auto,fp32,bf16,fp16");
  group.add("--threads", options.threads,
            {.help = "how many CPU threads to use (default: all cores)",
             .manual = "Limits the CPU threads. The default is all cores. Fewer leave room for other programs.",
             .example = std::string(kShape) + "--threads 4",
             .in_help = InHelp::all},
            "N");
  group.add(
      "--data", options.data,
      {.help = "made-up data: noise, a model's (default), or hard cases",
       .manual = R"(Chooses the made-up data. structured, the default, has means, outlier channels and locality like
           the data of a trained model. gaussian is plain noise, for which errors of sparse attention mean nothing.
           smooth has values that hardly change along the tokens. In loud, four channels of k hold most of its
           energy.)",
       .example = std::string(kShape) + "--data smooth",
       .in_help = InHelp::all},
      "gaussian,structured,smooth,loud");
  group.add("-s,--seed", options.seed,
            {.help = "seed of the data (default 42)",
             .manual = "Sets the seed of the made-up data. Compare figures of two runs only if they had the same data.",
             .example = std::string(kShape) + "--seed 7",
             .in_help = InHelp::all},
            "N");
}

/// Adds the options that say how often and how exactly to measure.
void add_rounds(const OptionGroup& group, AttentionOptions& options) {
  group.add("--warmup", options.warmup,
            {.help = "rounds that do not count (default 5, on a CPU 1)",
             .manual = "Sets how many rounds run before the measurement. Meanwhile, clocks and caches settle.",
             .example = std::string(kShape) + "--warmup 10",
             .in_help = InHelp::all},
            "N");
  group.add("--repetitions", options.repetitions,
            {.help = "rounds that count (default 20, on a CPU 5)",
             .manual = R"(Sets how many rounds count. In each round, every contender has its turn, so that a slower
                 clock affects all of them alike. Tables show the median.)",
             .example = std::string(kShape) + "--repetitions 50"},
            "N");
  group.add(
      "--turn", options.turn_ms,
      {.help = "milliseconds of a turn (default 0: one call)",
       .manual = R"(Lets a contender run for so many milliseconds in its turn; only the later half counts. Use this
           option if a single call is too short for the clock of the GPU to settle. With 0, a turn is one call.)",
       .example = std::string(kShape) + "--turn 50",
       .in_help = InHelp::all},
      "MS");
  group.add(
      "--accuracy-rows", options.accuracy_rows,
      {.help = "queries compared with exact attention (default 256; 0: none)",
       .manual = R"(Sets how many queries are compared with exact attention, for the columns of errors. The default is
           256 for made-up data, and all queries for --captured. With 0, nothing is compared.)",
       .example = std::string(kShape) + "--accuracy-rows 0",
       .in_help = InHelp::all},
      "N");
}

void add_reports(CLI::App& command, AttentionOptions& options) {
  const OptionGroup group(command, "Output and reports");
  add_table_options(group, options.table, kShape);
  group.add(
      "--report", options.report,
      {.help = "write a JSON report of the run",
       .manual =
           "Writes the rows with all digits, the settings and the machine into a JSON file. 'bench plot' draws it.",
       .example = std::string(kShape) + "--report attention.json"},
      "FILE");
  group.flag("--quiet", options.quiet,
             {.help = "show no progress bar",
              .manual = "Shows no progress bar. Warnings, errors and the table are still printed.",
              .example = std::string(kShape) + "--quiet",
              .in_help = InHelp::all});
  group.flag(
      "--json", options.json,
      {.help = "print the report as JSON in place of the table",
       .manual = "Prints the report as one JSON object on standard output, in place of the table. Use it in scripts.",
       .example = std::string(kShape) + "--json",
       .in_help = InHelp::all});
}

}  // namespace

void add_options(CLI::App& command, AttentionOptions& options) {
  const OptionGroup what(command, "What to measure");
  add_inputs(what, options);
  add_masks(what, options);
  add_selection(command, options);
  const OptionGroup measuring(command, "Measuring");
  add_machine(measuring, options);
  add_rounds(measuring, options);
  add_reports(command, options);
}

}  // namespace sparsereel::app::bench
