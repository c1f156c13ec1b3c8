// `sparsereel bench pipeline`: plans the run, measures the stages and fills the report. app/lab/bench/ holds these
// parts.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <set>

#include "app/commands/bench.h"
#include "app/jobs/used_files.h"
#include "app/lab/bench/pipeline_plan.h"
#include "app/lab/bench/pipeline_stages.h"
#include "app/lab/bench/rank_stages.h"
#include "app/lab/bench/rows.h"
#include "app/lab/measure/ranks_cost.h"
#include "app/links.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/layers/cpu_threads.h"

namespace sparsereel::app {
namespace {

/// Returns a heat map for each contender that drops blocks. Its rows are layers and its columns are steps.
std::vector<HeatMap> heat_maps(const Rows& rows) {
  std::vector<HeatMap> maps;
  for (const Row& row : rows) {
    const std::string mode = text_of(row, "mode");
    const Row steps = row.value("step_layer_sparsity", Row::array());
    if (steps.empty() || mode == "full" || mode == "quantized") continue;
    HeatMap map{.title = "sparsity, " + bench::row_name(row), .rows = "layer", .columns = "step", .values = {}};
    map.values.resize(row["layer_sparsity"].size());
    for (const Row& step : steps)
      for (size_t layer = 0; layer < step.size(); ++layer)
        map.values[layer].push_back(step[layer].is_null() ? std::nan("") : step[layer].get<double>());
    maps.push_back(std::move(map));
  }
  return maps;
}

/// The values of --dry-run: the milliseconds of a step on one GPU (0 if unknown), and the speed of the links between
/// GPUs in GB/s (by default, that of this machine's links).
struct Expectation {
  double step_ms = 0, link_speed = 0;
};

Expectation read_expectation(const std::string& text) {
  Expectation given;
  if (!text.empty() && text != "true") {
    const size_t comma = text.find(',');
    const auto step = parse_number<double>(text.substr(0, comma));
    const auto speed = comma == std::string::npos ? std::optional(0.0) : parse_number<double>(text.substr(comma + 1));
    if (!step || !(*step > 0) || !speed || (comma != std::string::npos && !(*speed > 0)))
      throw bad_input("--dry-run " + text + " is neither MILLISECONDS nor MILLISECONDS,GB/S",
                      "write for example 5180,340");
    given = {*step, *speed};
  }
  if (given.link_speed == 0) given.link_speed = link_speed(find_gpu_links());
  return given;
}

/// Returns rows with the expected times on 2, 4 and 8 GPUs, and on the numbers of GPUs that --gpus lists.
Rows expected_rows(const VideoCost& video, const std::vector<bench::GpuCount>& gpus, double speed) {
  std::set<int64_t> counts = {2, 4, 8};
  for (const bench::GpuCount& count : gpus)
    if (count.gpus > 1) counts.insert(count.gpus);
  Rows rows;
  for (const int64_t count : counts) {
    const RanksCost cost = cost_over_ranks(video, count, speed);
    const auto known = [&](double value) { return video.step_ms > 0 ? Row(value) : Row(); };
    rows.push_back({{"gpus", count},
                    {"passes", cost.passes},
                    {"ulysses", cost.ulysses},
                    {"most_heads", cost.most_heads},
                    {"megabytes", cost.megabytes},
                    {"exchange_ms", cost.exchange_ms},
                    {"step_ms", known(cost.step_ms)},
                    {"speedup", known(cost.speedup)}});
  }
  return rows;
}

/// Shows how long a step is expected to take on several GPUs.
void show_expected(const Settings& settings, const bench::PipelineOptions& options, RunReport& report) {
  const bench::PipelinePlan plan = bench::make_pipeline_plan(settings, options);
  TableOutput output(options.table);
  const auto pipeline = models::Pipeline::open(open_model(plan.run), plan.request);
  report_run(pipeline->device(), report);
  const models::Plan video = pipeline->resolve_anywhere(plan.request);
  const auto [step_ms, speed] = read_expectation(options.dry_run);
  VideoCost cost = bench::video_cost(pipeline->spec(), video);
  cost.step_ms = step_ms;
  const Rows rows = expected_rows(cost, bench::gpu_counts(settings, options.lists), speed);
  report.content["settings"] = {{"model", plan.run.model.string()},
                                {"tokens", cost.tokens},
                                {"layers", cost.layers},
                                {"heads", cost.heads},
                                {"passes", cost.passes},
                                {"step_ms", cost.step_ms},
                                {"link_gigabytes_per_second", speed}};
  report.content["rows"] = rows;
  Columns shown =
      columns({"gpus", "passes", "ulysses", "most_heads", "megabytes", "exchange_ms", "step_ms", "speedup"});
  for (Column& column : shown) {
    if (column.key == "step_ms") column.meaning = "expected time of a step";
    if (column.key == "speedup") column.meaning = "how many times as fast as on one GPU";
  }
  output.deliver("expected, not measured: " + std::to_string(std::lround(cost.tokens)) + " tokens, " +
                     number_text(speed, 3) + " GB/s a GPU, 16 bits\n\n" + markdown(shown, rows, output.aligned()) +
                     explained(shown, rows),
                 shown, rows, report);
}

void bench_pipeline(const Settings& settings, const bench::PipelineOptions& options, RunReport& report) {
  if (options.dry_run != bench::kNoDryRun) return show_expected(settings, options, report);
  const std::vector<bench::GpuCount> counts = bench::gpu_counts(settings, options.lists);
  bench::PipelinePlan plan = bench::make_pipeline_plan(settings, options);
  plan.request.device = bench::first_device(counts, plan.request.device);
  if (!plan.options.heat_map.empty()) check_chart("--heat-map", plan.options.heat_map);
  TableOutput output(options.table);
  if (plan.run.threads) models::set_threads(static_cast<int>(*plan.run.threads));
  const models::Checkpoint folder = open_and_say(plan.run);
  const auto pipeline = models::Pipeline::open(folder, plan.request);
  say_terms(plan.run, pipeline->spec());
  choose_steps(pipeline->spec(), plan);
  begin_report(settings, plan, folder, *pipeline, report, bench::fewest(counts));
  nlohmann::json& shown = report.content["settings"];
  shown["video_steps"] = plan.video_steps;
  shown["similarity"] = plan.video.attention_policy.defaults.similarity;
  Rows baselines;
  if (!options.against.empty())
    baselines = bench::read_baseline(options.against, shown, pipeline->spec().prompt.has_length);

  const c10::InferenceMode guard;
  const c10::OptionalDeviceGuard device(pipeline->device().is_cpu() ? std::nullopt : std::optional(pipeline->device()));
  RunProgress progress(!plan.run.quiet, report, remedy_of_interruption(report, "stages"));
  Rows rows;
  report.content["rows"] = rows;
  const auto take = [&](Rows so_far, int64_t text_tokens) {
    rows = std::move(so_far);
    rows.insert(rows.end(), baselines.begin(), baselines.end());
    bench::settle_tokens(shown, pipeline->spec(), plan.video, text_tokens);
  };
  const auto deliver = [&](const std::string& table, const Columns& columns) {
    progress.clear();
    output.deliver(bench::run_summary(report.content) + "\n\n" + table, columns, rows, report);
    if (plan.options.heat_map.empty()) return;
    write_heat_maps(plan.options.heat_map, caption_of(report.content), heat_maps(rows));
  };
  if (bench::any_together(counts)) {
    bench::measure_over_ranks(settings, plan, counts, *pipeline, progress, [&](Rows so_far, int64_t text_tokens) {
      take(std::move(so_far), text_tokens);
      report.content["rows"] = rows;
    });
    const Columns of_ranks = bench::rank_columns();
    return deliver(markdown(of_ranks, rows, output.aligned()) + explained(of_ranks, rows), of_ranks);
  }
  measure_stages(plan, *pipeline, progress, [&](Rows so_far, int64_t text_tokens) {
    take(std::move(so_far), text_tokens);
    bench::compare_steps(rows, plan.video_steps);
    report.content["rows"] = rows;
  });
  deliver(bench::stage_markdown(rows, plan.video_steps, output.aligned()), bench::stage_columns());
}

}  // namespace

void add_bench_pipeline(CLI::App& above, CommandLine& line) {
  CLI::App* command = above.add_subcommand("pipeline", "Measures the speed of whole videos, by each kind of attention");
  command->footer("sparsereel bench pipeline -m assets/tiny --report pipeline.json");
  const auto options = std::make_shared<bench::PipelineOptions>();
  bench::add_options(*command, *options);
  add_shared_options(*command, line, Command::bench_pipeline);
  command->callback([&line, options] {
    line.collect(PresetUse::whole_where_named);
    line.check_files(Command::bench_pipeline, {{"--output", options->table.output, true},
                                               {"--against", options->against},
                                               {"--heat-map", options->heat_map, true}});
    line.settings.given_as_lists(bench::selections_given(options->lists));
    line.start("bench pipeline");
    bench_pipeline(line.settings, *options, line.report);
  });
}

}  // namespace sparsereel::app
