// Runs the plan workload by workload; the parts are in bench/.
#include "app/commands/bench_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "app/commands/bench/accuracy.h"
#include "app/commands/bench/contenders.h"
#include "app/commands/bench/hardware.h"
#include "app/commands/bench/table.h"
#include "app/commands/bench/timing.h"
#include "app/commands/bench/watcher.h"
#include "hilbert/error.h"
#include "models/checkpoint/atomic_file.h"
#include "models/device.h"

namespace sparsereel::app {
namespace {

using attention::Mode;
using bench::Row;

/// What all workloads of a run share.
struct Run {
  bench::AttentionPlan plan;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
  std::string device_name;
  std::optional<bench::HardwareLimit> limit;
  int64_t warmup = 1;
  int64_t repetitions = 5;
  int64_t turn_ms = 0;
  int64_t accuracy_rows = 0;
};

Run prepare(const bench::AttentionOptions& options) {
  Run run;
  run.plan = bench::make_plan(options);
  run.device = models::resolve_device(options.device);
  run.dtype = models::resolve_dtype(options.dtype, run.device, at::kBFloat16);
  run.device_name = bench::device_name(run.device);
  if (!run.device.is_cpu()) run.limit = bench::hardware_limit(run.device_name);
  // A CPU run is slow and steady; a GPU's clock has to settle first.
  run.warmup = options.warmup.value_or(run.device.is_cpu() ? 1 : 5);
  run.repetitions = options.repetitions.value_or(run.device.is_cpu() ? 5 : 20);
  run.turn_ms = options.turn_ms;
  run.accuracy_rows = options.accuracy_rows;
  return run;
}

/// Before the inputs are made, since a Linux that runs out of memory kills instead of refusing.
void check_memory(const Run& run, const bench::Workload& workload, int64_t copies) {
  // Beside the inputs: an output, and fp32 copies of q, k, v and the output on a CPU.
  const double one = bench::input_bytes(workload.shape, run.dtype, 1);
  const double beside = run.device.is_cpu() ? bench::input_bytes(workload.shape, at::kFloat, 1) * 5 / 3 : one / 3;
  const double needed = bench::input_bytes(workload.shape, run.dtype, copies) + beside;
  const uint64_t available = models::free_memory(run.device);
  if (needed > static_cast<double>(available))
    throw bad_input("shape " + workload.shape.text() + " needs about " +
                        human_bytes(static_cast<uint64_t>(std::min(needed, 1e18))) + ", " + human_bytes(available) +
                        " are free on " + run.device.str(),
                    "choose fewer tokens, heads or a smaller batch");
}

std::optional<double> limit_of(const Run& run, Mode mode) {
  if (!run.limit || (mode == Mode::full && run.dtype == at::kFloat)) return {};
  return mode == Mode::full ? run.limit->bits16 : run.limit->bits8;
}

Row start_row(const Run& run, const bench::Workload& workload, const bench::Contender& contender) {
  Row row;
  row.workload = workload;
  row.mode = attention::name(contender.mode);
  row.kernel = contender.kernel;
  row.dtype = models::dtype_name(run.dtype);
  row.device = run.device.str();
  if (contender.policy) row.selection = bench::cells_of(*contender.policy);
  return row;
}

/// One run of every contender on the first inputs: which can run at all, what they skip, and how exact they are.
void try_contenders(const std::vector<bench::Contender>& contenders, const bench::Inputs& inputs,
                    const std::optional<bench::ExactRows>& exact, attention::Workspace& workspace,
                    bench::Watcher& watcher, std::vector<Row>& rows) {
  for (size_t i = 0; i < contenders.size(); ++i) {
    watcher.stop_if_interrupted();
    Row& row = rows[i];
    row.note = bench::failure_of([&] {
      bench::Outcome outcome = contenders[i].run(inputs);
      std::vector<attention::Statistics> layers(1);
      attention::collect_counts(workspace, layers);
      outcome.statistics += layers.front();
      row.kernel = outcome.kernel;
      row.sparsity = outcome.statistics.sparsity();
      if (row.selection.cell) row.mean_share = outcome.statistics.mean_share();
      if (outcome.statistics.predicted_tiles > 0) row.predicted_error = outcome.statistics.predicted_error();
      if (!exact) return;
      const bench::Accuracy accuracy = bench::compare(outcome.out, *exact);
      row.rel_l1 = accuracy.relative_l1;
      row.cosine = accuracy.cosine;
    });
    if (!row.note.empty()) row.sparsity.reset();
  }
}

void add_times(const Run& run, const bench::Measurement& measurement, Row& row) {
  if (!measurement.failure.empty()) {
    row.note = measurement.failure;
    return;
  }
  row.ms = bench::spread(measurement.milliseconds);
  const double computed = row.workload.operations() * (1 - row.sparsity.value_or(0));
  row.tops = computed / (row.ms->median * 1e-3) / 1e12;
  if (const auto limit = limit_of(run, attention::parse_mode(row.mode))) row.limit_percent = 100 * *row.tops / *limit;
}

/// Times the rows that have no note yet, and the pre-pass of ours beside them.
void time_rows(const Run& run, const std::vector<bench::Contender>& contenders,
               const std::vector<bench::Inputs>& inputs, bench::Watcher& watcher, std::vector<Row>& rows) {
  std::vector<bench::Contestant> contestants;
  std::vector<std::function<void(const bench::Measurement&)>> receivers;
  for (size_t i = 0; i < contenders.size(); ++i) {
    if (!rows[i].note.empty()) continue;
    Row& row = rows[i];
    const bench::Contender& contender = contenders[i];
    contestants.emplace_back(
        [&contender, &inputs](int64_t buffer) { contender.run(inputs[static_cast<size_t>(buffer)]); });
    receivers.emplace_back([&run, &row](const bench::Measurement& measurement) { add_times(run, measurement, row); });
    if (!contender.run_prepass) continue;
    contestants.emplace_back(
        [&contender, &inputs](int64_t buffer) { contender.run_prepass(inputs[static_cast<size_t>(buffer)]); });
    receivers.emplace_back([&row](const bench::Measurement& measurement) {
      if (measurement.failure.empty()) row.prepass_ms = bench::spread(measurement.milliseconds).median;
    });
  }
  bench::Timer timer(run.device);
  const bench::Rounds rounds{.warmup = run.warmup,
                             .repetitions = run.repetitions,
                             .buffers = static_cast<int64_t>(inputs.size()),
                             .turn_ms = static_cast<double>(run.turn_ms)};
  const auto before_round = [&](int64_t done) { watcher.round(done, rounds.warmup + rounds.repetitions); };
  const std::vector<bench::Measurement> measurements = bench::alternate(contestants, rounds, timer, before_round);
  for (size_t i = 0; i < measurements.size(); ++i) receivers[i](measurements[i]);
}

std::vector<Row> measure(const Run& run, const bench::Workload& workload, bench::Watcher& watcher) {
  watcher.stage((workload.name.empty() ? "" : workload.name + " ") + workload.shape.text());
  const int64_t copies = bench::copies_beyond_cache(workload.shape, run.dtype);
  check_memory(run, workload, copies);
  const std::vector<bench::Inputs> inputs =
      bench::make_inputs(workload.shape, run.plan.data, run.dtype, run.device, copies, run.plan.seed);
  std::optional<bench::ExactRows> exact;
  if (run.accuracy_rows > 0) exact = bench::exact_attention(inputs.front(), run.accuracy_rows, workload.causal);

  attention::Workspace workspace;
  const auto contenders = bench::make_contenders(run.plan, workload, run.device, run.dtype, workspace);
  std::vector<Row> rows;
  rows.reserve(contenders.size());
  for (const bench::Contender& contender : contenders) rows.push_back(start_row(run, workload, contender));
  try_contenders(contenders, inputs.front(), exact, workspace, watcher, rows);
  time_rows(run, contenders, inputs, watcher, rows);
  bench::compare_with_dense(rows);
  return rows;
}

nlohmann::json settings_report(const Run& run, const bench::AttentionOptions& options) {
  nlohmann::json settings = {{"data", options.data},   {"seed", run.plan.seed},
                             {"warmup", run.warmup},   {"repetitions", run.repetitions},
                             {"turn_ms", run.turn_ms}, {"accuracy_rows", run.accuracy_rows}};
  if (run.plan.has(Mode::sparse)) {
    const attention::Policy& policy = run.plan.policies.front();
    settings["selection_rows"] = policy.selection_rows;
    settings["similarity"] = policy.defaults.similarity;
    settings["pv_threshold"] = policy.defaults.pv_threshold;
  }
  return settings;
}

/// "NVIDIA H200, gaussian data, seed 42, median of 20 rounds after 5 to warm up"
std::string summary(const Run& run, const bench::AttentionOptions& options) {
  std::string text = run.device_name;
  if (run.device.is_cpu()) text += ", " + std::to_string(at::get_num_threads()) + " threads";
  text += ", " + options.data + " data, seed " + std::to_string(run.plan.seed) + ", median of " +
          std::to_string(run.repetitions) + " rounds after " + std::to_string(run.warmup) + " to warm up";
  if (run.turn_ms > 0) text += ", turns of " + std::to_string(run.turn_ms) + " ms";
  return text;
}

std::string render(const Run& run, const bench::AttentionOptions& options, const std::vector<Row>& rows,
                   const nlohmann::json& content) {
  if (run.plan.format == bench::Format::csv) return bench::csv(rows);
  if (run.plan.format == bench::Format::json) return dump(content, 2) + "\n";
  return summary(run, options) + "\n\n" + bench::markdown(rows);
}

}  // namespace

void bench_attention(const bench::AttentionOptions& options, RunReport& report) {
  // The device first: ATen settles at its first look whether there is CUDA in the process.
  const Run run = prepare(options);
  std::optional<models::AtomicFile> output;
  if (!options.output.empty()) output.emplace(options.output);
  if (options.threads) at::set_num_threads(static_cast<int>(*options.threads));
  bench::report_left_out(run.plan.left_out, report);
  report.content["machine"] = bench::machine_report(run.device);
  if (run.limit)
    report.content["machine"]["limit_tops"] = {{"8_bits", run.limit->bits8}, {"16_bits", run.limit->bits16}};
  report.content["settings"] = settings_report(run, options);
  report.content["rows"] = nlohmann::json::array();

  const c10::OptionalDeviceGuard guard(run.device.is_cpu() ? std::nullopt : std::optional(run.device));
  bench::Watcher watcher(
      !options.quiet, report,
      "run the same command again; --json and --report hold the rows of the workloads that were done");
  std::vector<Row> rows;
  for (const bench::Workload& workload : run.plan.workloads) {
    for (Row& row : measure(run, workload, watcher)) rows.push_back(std::move(row));
    report.content["rows"] = bench::to_json(rows);
  }
  watcher.clear();

  if (std::none_of(rows.begin(), rows.end(), [](const Row& row) { return row.ms.has_value(); }))
    throw run_failure("nothing could be measured: " + rows.front().note, "change the shape, the modes or the dtype");
  bench::deliver(render(run, options, rows, report.content), options.output, output, rows.size(), report);
}

}  // namespace sparsereel::app
