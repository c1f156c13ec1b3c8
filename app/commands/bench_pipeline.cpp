// Options, stages, report; the parts are in bench/.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <cmath>

#include "app/commands/bench.h"
#include "app/commands/bench/pipeline_stages.h"
#include "app/commands/bench/rows.h"

namespace sparsereel::app {
namespace {

/// One a contender that leaves blocks out: layers down, steps across.
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

}  // namespace

void bench_pipeline(const Settings& settings, const bench::PipelineOptions& options, RunReport& report) {
  bench::PipelinePlan plan = bench::make_pipeline_plan(settings, options);
  if (!plan.options.heat_map.empty()) check_png("--heat-map", plan.options.heat_map);
  TableOutput output(options.table);
  if (plan.run.threads) at::set_num_threads(static_cast<int>(*plan.run.threads));
  const models::Checkpoint folder = open_model(plan.run);
  const auto pipeline = models::Pipeline::open(folder, plan.request);
  choose_steps(pipeline->spec(), plan);
  begin_report(settings, plan, folder, *pipeline, report);
  nlohmann::json& shown = report.content["settings"];
  shown["video_steps"] = plan.video_steps;
  shown["similarity"] = plan.video.attention_policy.defaults.similarity;
  Rows rivals;
  if (!options.against.empty()) rivals = bench::read_rival(options.against, shown);

  const c10::InferenceMode guard;
  const c10::OptionalDeviceGuard device(pipeline->device().is_cpu() ? std::nullopt : std::optional(pipeline->device()));
  RunProgress progress(!plan.run.quiet, report,
                       "run the same command again; --json and --report hold the stages that were done");
  Rows rows;
  report.content["rows"] = rows;
  measure_stages(plan, *pipeline, progress, [&](Rows so_far) {
    rows = std::move(so_far);
    rows.insert(rows.end(), rivals.begin(), rivals.end());
    bench::compare_steps(rows, plan.video_steps);
    report.content["rows"] = rows;
  });
  progress.clear();
  if (!plan.options.heat_map.empty()) write_heat_maps(plan.options.heat_map, heat_maps(rows));
  output.deliver(
      bench::run_summary(report.content) + "\n\n" + bench::stage_markdown(rows, plan.video_steps, output.aligned()),
      bench::stage_columns(), rows, report);
}

}  // namespace sparsereel::app
