// The options of `bench attention` on the command line.
#include <CLI/CLI.hpp>

#include "app/commands/bench_attention.h"
#include "app/settings.h"

namespace sparsereel::app {
namespace {

void add_what(CLI::App& command, bench::AttentionOptions& options) {
  const char* group = "What to measure";
  std::string names;
  for (const Workload& workload : known_workloads()) names += " " + workload.name;
  command
      .add_option("--shape", options.shapes, "B,H,N,D: batch, heads, tokens, head_dim; repeatable, or separated by ;")
      ->type_name("B,H,N,D")
      ->group(group);
  command.add_option("--workload", options.workloads, "the attention of known models, comma list of:" + names)
      ->type_name("NAMES")
      ->group(group);
  command
      .add_option("--captured", options.captured,
                  "q, k and v of a run's attention, as tests/bench/capture_attention writes them")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--token-order", options.token_orders,
                  "of --captured: comma list of hilbert, native, time-major, morton, random (default hilbert)")
      ->type_name("ORDERS")
      ->group(group);
  command.add_option("--modes", options.modes, "comma list (default full,quantized,sparse)")
      ->type_name("MODES")
      ->group(group);
  command
      .add_option("--text-tokens", options.text_tokens,
                  "the last N tokens are text, always dense; or 'model' (default 0)")
      ->type_name("N")
      ->group(group);
  command.add_flag("--causal", options.causal, "token i sees tokens up to i")->group(group);
}

void add_selection(CLI::App& command, bench::AttentionOptions& options) {
  const char* group = "Block selection of mode sparse";
  add_selection_lists(command, options.sparse, group, bench::kDefaultTopk);
  command
      .add_option(
          "--selection-rows", options.selection_rows,
          "queries that share one selection (default " + std::to_string(attention::Policy{}.selection_rows) + ")")
      ->type_name("64,128,192")
      ->group(group);
  command.add_option("--similarity", options.similarity, find_option("similarity")->help)->type_name("X")->group(group);
  command.add_option("--pv-threshold", options.pv_threshold, find_option("pv_threshold")->help)
      ->type_name("X")
      ->group(group);
}

void add_measuring(CLI::App& command, bench::AttentionOptions& options) {
  const char* group = "Measuring";
  command.add_option("--device", options.device, "where it runs (default auto)")
      ->type_name("auto,cpu,cuda,cuda:N")
      ->group(group);
  command.add_option("--dtype", options.dtype, "arithmetic (default auto: bf16 on a GPU, fp32 on a CPU)")
      ->type_name("auto,fp32,bf16,fp16")
      ->group(group);
  command.add_option("--threads", options.threads, "CPU threads (default: all cores)")->type_name("N")->group(group);
  command
      .add_option("--data", options.data, "plain, like a trained model's, or that with slow values (default gaussian)")
      ->type_name("gaussian,structured,smooth")
      ->group(group);
  command.add_option("-s,--seed", options.seed, "seed of the data (default 42)")->type_name("N")->group(group);
  command.add_option("--warmup", options.warmup, "rounds that do not count (default 5, on a CPU 1)")
      ->type_name("N")
      ->group(group);
  command.add_option("--repetitions", options.repetitions, "rounds that count (default 20, on a CPU 5)")
      ->type_name("N")
      ->group(group);
  command
      .add_option("--turn", options.turn_ms,
                  "a contender's turn in a round, in milliseconds, its later half counts; 0: one call (default 0)")
      ->type_name("MS")
      ->group(group);
  command
      .add_option("--accuracy-rows", options.accuracy_rows,
                  "queries compared with exact attention; 0: none (default 256, of --captured all)")
      ->type_name("N")
      ->group(group);
}

void add_output(CLI::App& command, bench::AttentionOptions& options) {
  const char* group = "Output and reports";
  command.add_option("--format", options.format, "of the table (default: by the output's ending, else md)")
      ->type_name("md,csv,json")
      ->group(group);
  command.add_option("-o,--output", options.output, "write the table to this file in place of stdout")
      ->type_name("FILE")
      ->group(group);
  command.add_option("--report", options.report, "write a JSON report of the run")->type_name("FILE")->group(group);
  command.add_flag("--quiet", options.quiet, "no progress bar")->group(group);
  command.add_flag("--json", options.json, "print the report on stdout in place of the table")->group(group);
}

}  // namespace

void add_bench_attention_options(CLI::App& command, bench::AttentionOptions& options) {
  add_what(command, options);
  add_selection(command, options);
  add_measuring(command, options);
  add_output(command, options);
}

}  // namespace sparsereel::app
