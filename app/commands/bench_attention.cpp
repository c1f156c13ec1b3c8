// `sparsereel bench attention`: measures workload after workload. app/lab/bench/ holds its options, contenders and
// rows.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "app/commands/bench.h"
#include "app/counted.h"
#include "app/lab/bench/accuracy.h"
#include "app/lab/bench/contenders.h"
#include "app/lab/bench/options.h"
#include "app/lab/bench/rows.h"
#include "app/lab/measure/captured.h"
#include "app/lab/measure/run_progress.h"
#include "app/lab/measure/timing.h"
#include "hilbert/error.h"
#include "models/engine/cpu_time.h"
#include "models/layers/cpu_threads.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

using attention::Mode;

/// Number of queries that are compared with exact attention on synthetic data.
constexpr int64_t kSampledRows = 256;

/// The state that all workloads of a run share.
struct Run {
  const bench::AttentionOptions& options;
  bench::AttentionPlan plan;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  std::string device_name = {};
  std::optional<bench::HardwareLimit> limit = {};
  int64_t warmup = 1;
  int64_t repetitions = 5;
  std::optional<Capture> capture = {};
};

/// Adds the captured calls of the file as workloads, one for each token order.
void add_capture(const std::string& file, Run& run) {
  run.capture = read_capture(file);
  const auto sizes = run.capture->calls.front().q.sizes();
  for (const hilbert::TokenOrder order : run.plan.orders)
    run.plan.workloads.push_back(
        {.name = std::filesystem::path(file).stem().string(),
         .shape = {.batch = sizes[0], .heads = sizes[2], .tokens = sizes[1], .head_dim = sizes[3]},
         .text_tokens = run.capture->text_tokens,
         .causal = false,
         .token_order = std::string(hilbert::name(order))});
}

Run prepare(const bench::AttentionOptions& options) {
  Run run{.options = options, .plan = bench::make_plan(options)};
  run.device = models::resolve_device(options.device);
  run.dtype = models::resolve_dtype(options.dtype, run.device, at::kBFloat16);
  run.device_name = device_name(run.device);
  if (!run.device.is_cpu()) run.limit = bench::hardware_limit(run.device_name);
  // Few rounds are enough on a CPU, whose times are long and steady. A GPU's clock has to settle first.
  run.warmup = options.warmup.value_or(run.device.is_cpu() ? 1 : 5);
  run.repetitions = options.repetitions.value_or(run.device.is_cpu() ? 5 : 20);
  if (!options.captured.empty()) add_capture(options.captured, run);
  return run;
}

/// The inputs that a workload is measured on.
struct Data {
  std::vector<Inputs> inputs;
  /// True for captured calls: a contender runs on all inputs, and its time is the mean. If false, the rounds use the
  /// inputs in turn.
  bool together = false;
  std::optional<int64_t> accuracy_rows;  // queries of a call that are compared; all if unset

  /// Returns how many inputs are compared with exact attention: all captured calls, or the first of several similar
  /// synthetic inputs.
  size_t compared() const { return together ? inputs.size() : 1; }
};

/// Throws Error if the memory is too small. Call it before the inputs are made, because Linux kills a process that runs
/// out of memory instead of refusing the allocation.
void check_memory(const Run& run, const Workload& workload, int64_t copies) {
  // Bytes needed besides the inputs: an output, and on a CPU fp32 copies of q, k, v and the output.
  const double out = workload.shape.elements(), fp32 = sizeof(float);
  const double beside = run.device.is_cpu() ? input_bytes(workload.shape, at::kFloat, 1) + 2 * out * fp32
                                            : out * static_cast<double>(c10::elementSize(run.dtype));
  const double needed = input_bytes(workload.shape, run.dtype, copies) + beside;
  const uint64_t available = models::free_memory(run.device);
  if (needed > static_cast<double>(available))
    throw bad_input("shape " + workload.shape.text() + " needs about " +
                        human_bytes(static_cast<uint64_t>(std::min(needed, 1e18))) + ", but only " +
                        human_bytes(available) + " is free on " + run.device.str(),
                    "choose fewer tokens, fewer heads or a smaller batch");
}

/// Returns a warning if measuring will take long on a CPU; otherwise an empty string. Assumes that every mode takes as
/// long as full attention.
std::string slow_warning(const Run& run) {
  if (!run.device.is_cpu()) return {};
  const auto turns = static_cast<double>((run.warmup + run.repetitions) * std::ssize(run.plan.modes));
  double operations = 0;
  for (const Workload& workload : run.plan.workloads) operations += turns * workload.operations();
  return models::slow_warning("measuring", operations, run.dtype);
}

std::optional<double> limit_of(const Run& run, const Row& row) {
  const bool full = text_of(row, "mode") == name(Mode::full);
  if (!run.limit || (full && run.dtype == at::kFloat)) return {};
  return full || row.contains("arithmetic") ? run.limit->bits16 : run.limit->bits8;
}

Row start_row(const Run& run, const Workload& workload, const bench::Contender& contender) {
  Row row = bench::attention_row(workload, std::string(attention::name(contender.mode)),
                                 contender.policy ? &*contender.policy : nullptr);
  row.update({{"kernel", contender.kernel}, {"dtype", models::dtype_name(run.dtype)}, {"device", run.device.str()}});
  return row;
}

Data make_data(const Run& run, const Workload& workload, int64_t copies) {
  if (!workload.captured())
    return {.inputs = make_inputs(workload.shape, run.plan.data, run.dtype, run.device, copies, run.plan.seed),
            .together = false,
            .accuracy_rows = run.options.accuracy_rows.value_or(kSampledRows)};
  at::manual_seed(run.plan.seed);  // seeds the choice of sampled queries
  Data data{.inputs = {}, .together = true, .accuracy_rows = run.options.accuracy_rows};
  const at::Tensor places = places_in(hilbert::parse_token_order(workload.token_order), *run.capture);
  const auto moved = [&](const at::Tensor& t) { return t.index_select(1, places).to(run.device, run.dtype); };
  for (const CapturedCall& call : run.capture->calls)
    data.inputs.push_back({.q = moved(call.q), .k = moved(call.k), .v = moved(call.v)});
  return data;
}

/// The results of running a contender once, on all inputs that are compared.
struct Trial {
  std::string kernel, failure;
  attention::Statistics statistics;
  bench::Accuracy accuracy;
};

void run_once(const bench::Contender& contender, const Inputs& inputs, const std::optional<bench::ExactRows>& exact,
              attention::Workspace& workspace, Trial& trial) {
  if (!trial.failure.empty()) return;
  trial.failure = failure_of([&] {
    bench::AttentionResult outcome = contender.run(inputs);
    std::vector<attention::Statistics> layers(1);
    attention::collect_counts(workspace, layers);
    trial.kernel = outcome.kernel;
    trial.statistics += outcome.statistics;
    trial.statistics += layers.front();
    if (exact) trial.accuracy += bench::compare(outcome.out, *exact);
  });
}

void add_trial(const Trial& trial, bool compared, Row& row) {
  if (!trial.kernel.empty()) row["kernel"] = trial.kernel;
  if (!trial.failure.empty()) {
    row["note"] = trial.failure;
    return;
  }
  row["sparsity"] = trial.statistics.sparsity();
  if (trial.statistics.kept_blocks > 0 && text_of(row, "mode") == name(Mode::sparse))
    row["skipped_pv"] =
        static_cast<double>(trial.statistics.skipped_pv_blocks) / static_cast<double>(trial.statistics.kept_blocks);
  if (!row["cell"].is_null()) row["mean_share"] = trial.statistics.mean_share();
  if (trial.statistics.predicted_tiles > 0) row["predicted_error"] = trial.statistics.predicted_error();
  if (compared) row.update({{"rel_l1", trial.accuracy.relative_l1()}, {"cosine", trial.accuracy.cosine()}});
}

/// Runs every contender once, to find which can run, what they skip and how exact they are.
void try_contenders(const std::vector<bench::Contender>& contenders, const Data& data, bool causal,
                    attention::Workspace& workspace, RunProgress& progress, Rows& rows) {
  std::vector<Trial> trials(contenders.size());
  const bool compares = data.accuracy_rows != 0;
  for (size_t call = 0; call < data.compared(); ++call) {
    const Inputs& inputs = data.inputs[call];
    progress.stop_if_interrupted();
    std::optional<bench::ExactRows> exact;
    if (compares) exact = bench::exact_attention(inputs, data.accuracy_rows.value_or(inputs.q.size(1)), causal);
    for (size_t i = 0; i < contenders.size(); ++i) {
      progress.stop_if_interrupted();
      run_once(contenders[i], inputs, exact, workspace, trials[i]);
    }
  }
  for (size_t i = 0; i < contenders.size(); ++i) add_trial(trials[i], compares, rows[i]);
}

/// Returns a call that runs `run` on one of the inputs, given by its index, or, for captured calls, on all inputs.
TimedCall timed_call(const Data& data, const std::function<void(const Inputs&)>& run) {
  if (!data.together) return [&data, run](int64_t buffer) { run(data.inputs[static_cast<size_t>(buffer)]); };
  return [&data, run](int64_t) {
    for (const Inputs& inputs : data.inputs) run(inputs);
  };
}

/// Returns the milliseconds of one call.
Spread spread_of(const Measurement& measurement, const Data& data) {
  std::vector<double> milliseconds = measurement.milliseconds;
  for (double& each : milliseconds) each /= static_cast<double>(data.compared());
  return spread(milliseconds);
}

void add_times(const Run& run, const Workload& workload, const Measurement& measurement, const Data& data, Row& row) {
  if (!measurement.failure.empty()) {
    row["note"] = measurement.failure;
    return;
  }
  const Spread time = spread_of(measurement, data);
  const double effective = workload.operations() / (time.median * 1e-3) / 1e12;
  const double tops = effective * (1 - number_of(row, "sparsity").value_or(0));
  row.update(time_fields(time));
  row.update({{"tops", tops}, {"effective_tops", effective}});
  if (const auto limit = limit_of(run, row)) row["limit_percent"] = 100 * tops / *limit;
}

/// Times the rows that have no note; a note says why a contender cannot run. Also times the pre-pass of our kernels.
void time_rows(const Run& run, const Workload& workload, const std::vector<bench::Contender>& contenders,
               const Data& data, RunProgress& progress, Rows& rows) {
  std::vector<TimedCall> calls;
  std::vector<std::function<void(const Measurement&)>> receivers;
  for (size_t i = 0; i < contenders.size(); ++i) {
    if (rows[i].contains("note")) continue;
    Row& row = rows[i];
    calls.push_back(timed_call(data, contenders[i].run));
    receivers.emplace_back([&](const Measurement& measurement) { add_times(run, workload, measurement, data, row); });
    if (!contenders[i].run_prepass) continue;
    calls.push_back(timed_call(data, contenders[i].run_prepass));
    receivers.emplace_back([&row, &data](const Measurement& measurement) {
      const auto ms = number_of(row, "ms");
      if (!measurement.failure.empty() || !ms) return;
      const double prepass = spread_of(measurement, data).median;
      row.update({{"prepass_ms", prepass}, {"prepass_percent", 100 * prepass / *ms}});
    });
  }
  Timer timer(run.device);
  const Rounds rounds{.warmup = run.warmup,
                      .repetitions = run.repetitions,
                      .buffers = static_cast<int64_t>(data.inputs.size()),
                      .turn_ms = static_cast<double>(run.options.turn_ms)};
  const auto before_round = [&](int64_t done) { progress.round(done, rounds.warmup + rounds.repetitions); };
  const std::vector<Measurement> measurements = alternate(calls, rounds, timer, before_round);
  for (size_t i = 0; i < measurements.size(); ++i) receivers[i](measurements[i]);
}

Rows measure(const Run& run, const Workload& workload, RunProgress& progress) {
  progress.stage((workload.name.empty() ? "" : workload.name + " ") + workload.shape.text());
  const int64_t copies = workload.captured() ? static_cast<int64_t>(run.capture->calls.size())
                                             : copies_beyond_cache(workload.shape, run.dtype);
  check_memory(run, workload, copies);
  const Data data = make_data(run, workload, copies);

  attention::Workspace workspace;
  const auto contenders = bench::make_contenders(run.plan, workload, run.device, run.dtype, workspace);
  Rows rows;
  for (const bench::Contender& contender : contenders) rows.push_back(start_row(run, workload, contender));
  try_contenders(contenders, data, workload.causal, workspace, progress, rows);
  time_rows(run, workload, contenders, data, progress, rows);
  bench::compare_with_dense(rows);
  bench::split_prepass(rows);
  return rows;
}

/// Returns a description of the data: "structured", "9 calls of tiny.safetensors", or both.
std::string data_text(const Run& run) {
  const bench::AttentionOptions& options = run.options;
  std::string text;
  if (!options.shapes.empty() || !options.workloads.empty()) text = options.data.value_or(bench::kUsualData);
  if (run.capture)
    text += (text.empty() ? "" : " and ") + counted(static_cast<int64_t>(run.capture->calls.size()), "call") + " of " +
            std::filesystem::path(options.captured).filename().string();
  return text;
}

nlohmann::json settings_report(const Run& run) {
  nlohmann::json settings = {
      {"data", data_text(run)},         {"seed", run.plan.seed},
      {"warmup", run.warmup},           {"repetitions", run.repetitions},
      {"turn_ms", run.options.turn_ms}, {"accuracy_rows", run.options.accuracy_rows.value_or(kSampledRows)}};
  if (run.capture && !run.options.accuracy_rows)
    settings["accuracy_rows_captured"] = run.capture->calls.front().q.size(1);
  if (run.plan.has(Mode::sparse)) {
    const attention::Policy& policy = run.plan.grid.combinations.front().policy;
    settings["selection_rows"] = policy.selection_rows;
    settings["similarity"] = policy.defaults.similarity;
    settings["pv_threshold"] = policy.defaults.pv_threshold;
  }
  return settings;
}

/// Returns a line that describes the measurement: "NVIDIA H200, gaussian data, seed 42, median of 20 rounds after 5 to
/// warm up".
std::string summary(const Run& run) {
  std::string text = run.device_name;
  if (run.device.is_cpu()) text += ", " + counted(at::get_num_threads(), "thread");
  text += ", " + data_text(run) + " data, seed " + std::to_string(run.plan.seed) + ", median of " +
          counted(run.repetitions, "round") + " after " + std::to_string(run.warmup) + " to warm up";
  if (run.options.turn_ms > 0) text += ", turns of " + std::to_string(run.options.turn_ms) + " ms";
  return text;
}

void bench_attention(const bench::AttentionOptions& options, RunReport& report) {
  // Choose the device first, because ATen decides at its first query whether the process has CUDA.
  const Run run = prepare(options);
  TableOutput output(options.table);
  if (options.threads) models::set_threads(static_cast<int>(*options.threads));
  for (const Workload& workload : run.plan.workloads) check_memory(run, workload, 1);
  std::vector<std::string> warnings = run.plan.warnings;
  if (std::string slow = slow_warning(run); !slow.empty()) warnings.push_back(std::move(slow));
  report_choices(run.plan.grid, warnings, report);
  report_run(run.device, report);
  if (run.limit)
    report.content["machine"]["limit_tops"] = {{"8_bits", run.limit->bits8}, {"16_bits", run.limit->bits16}};
  report.content["settings"] = settings_report(run);
  report.content["rows"] = nlohmann::json::array();

  const c10::OptionalDeviceGuard guard(run.device.is_cpu() ? std::nullopt : std::optional(run.device));
  RunProgress progress(!options.quiet, report, remedy_of_interruption(report, "rows of the workloads"));
  Rows rows;
  for (const Workload& workload : run.plan.workloads) {
    for (Row& row : measure(run, workload, progress)) rows.push_back(std::move(row));
    report.content["rows"] = rows;
  }
  progress.clear();

  if (std::none_of(rows.begin(), rows.end(), [](const Row& row) { return number_of(row, "ms").has_value(); }))
    throw run_failure("nothing could be measured: " + text_of(rows.front(), "note"),
                      "change the shape, the modes or the dtype");
  const Columns shown = bench::attention_columns();
  output.deliver(summary(run) + "\n\n" + markdown(shown, rows, output.aligned()) + explained(shown, rows), shown, rows,
                 report);
}

}  // namespace

void add_bench_attention(CLI::App& above, CommandLine& line) {
  CLI::App* command = above.add_subcommand("attention", "Measures full, quantized and sparse attention side by side");
  command->footer("sparsereel bench attention --shape 1,4,2336,64 --topk 0.5,0.3");
  const auto options = std::make_shared<bench::AttentionOptions>();
  bench::add_options(*command, *options);
  command->callback([&line, options] {
    line.report_file = options->report;
    check_distinct(
        {{"--output", options->table.output}, {"--report", options->report}, {"--captured", options->captured}});
    start_report(options->report, options->json, "bench attention", line.report);
    bench_attention(*options, line.report);
  });
}

}  // namespace sparsereel::app
