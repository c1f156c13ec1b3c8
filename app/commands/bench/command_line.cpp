// The options of `bench attention` on the command line.
#include "app/commands/bench_attention.h"
#include "app/options/option_group.h"
#include "app/options/settings.h"

namespace sparsereel::app {
namespace {

void add_what(CLI::App& command, bench::AttentionOptions& options) {
  const OptionGroup group(command, "What to measure");
  std::string names;
  for (const Workload& workload : known_workloads()) names += " " + workload.name;
  group.add("--shape", options.shapes, "B,H,N,D: batch, heads, tokens, head_dim; repeatable, or separated by ;",
            "B,H,N,D");
  group.add("--workload", options.workloads, "the attention of known models, comma list of:" + names, "NAMES");
  group.add("--captured", options.captured,
            "q, k and v of a run's attention, as tests/bench/capture_attention writes them", "FILE");
  group.add("--token-order", options.token_orders,
            "of --captured: comma list of hilbert, native, time-major, morton, random (default hilbert)", "ORDERS");
  group.add("--modes", options.modes, "comma list (default full,quantized,sparse)", "MODES");
  group.add("--text-tokens", options.text_tokens, "the last N tokens are text, always dense; or 'model' (default 0)",
            "N");
  group.flag("--causal", options.causal, "token i sees tokens up to i");
}

void add_selection(CLI::App& command, bench::AttentionOptions& options) {
  const OptionGroup group(command, "Block selection of mode sparse");
  add_selection_lists(group, options.sparse, bench::kDefaultTopk);
  group.add("--selection-rows", options.selection_rows,
            "queries that share one selection (default " + std::to_string(attention::Policy{}.selection_rows) + ")",
            "64,128,192");
  group.add("--similarity", options.similarity, find_option("similarity")->help, "X");
  group.add("--pv-threshold", options.pv_threshold, find_option("pv_threshold")->help, "X");
}

void add_measuring(CLI::App& command, bench::AttentionOptions& options) {
  const OptionGroup group(command, "Measuring");
  group.add("--device", options.device, "where it runs (default auto)", "auto,cpu,cuda,cuda:N");
  group.add("--dtype", options.dtype, "arithmetic (default auto: bf16 on a GPU, fp32 on a CPU)", "auto,fp32,bf16,fp16");
  group.add("--threads", options.threads, "CPU threads (default: all cores)", "N");
  group.add("--data", options.data,
            "plain, like a trained model's, that with slow values, or loud channels (default gaussian)",
            "gaussian,structured,smooth,loud");
  group.add("-s,--seed", options.seed, "seed of the data (default 42)", "N");
  group.add("--warmup", options.warmup, "rounds that do not count (default 5, on a CPU 1)", "N");
  group.add("--repetitions", options.repetitions, "rounds that count (default 20, on a CPU 5)", "N");
  group.add("--turn", options.turn_ms,
            "a contender's turn in a round, in milliseconds, its later half counts; 0: one call (default 0)", "MS");
  group.add("--accuracy-rows", options.accuracy_rows,
            "queries compared with exact attention; 0: none (default 256, of --captured all)", "N");
}

void add_output(CLI::App& command, bench::AttentionOptions& options) {
  const OptionGroup group(command, "Output and reports");
  group.add("--format", options.format, "of the table (default: by the output's ending, else md)", "md,csv,json");
  group.add("-o,--output", options.output, "write the table to this file in place of stdout", "FILE");
  group.add("--report", options.report, "write a JSON report of the run", "FILE");
  group.flag("--quiet", options.quiet, "no progress bar");
  group.flag("--json", options.json, "print the report on stdout in place of the table");
}

}  // namespace

void add_bench_attention_options(CLI::App& command, bench::AttentionOptions& options) {
  add_what(command, options);
  add_selection(command, options);
  add_measuring(command, options);
  add_output(command, options);
}

}  // namespace sparsereel::app
