// Options, stages, report; the parts are in bench/.
#include "app/commands/bench_pipeline.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "app/commands/bench/pipeline_stages.h"
#include "app/commands/bench/run_settings.h"
#include "app/measure/whole_videos.h"
#include "app/media/plot.h"
#include "app/options/option_group.h"
#include "models/engine/request.h"

namespace sparsereel::app {
namespace {

nlohmann::json settings_report(const bench::PipelinePlan& plan, const models::GenerateSettings& resolved,
                               const models::Pipeline& pipeline) {
  nlohmann::json settings = bench::run_settings(plan.run, plan.request, resolved, pipeline);
  settings["video_steps"] = plan.video_steps;
  settings["similarity"] = plan.request.attention_policy.defaults.similarity;
  return settings;
}

std::string render(const bench::PipelinePlan& plan, const std::vector<bench::StageRow>& rows,
                   const nlohmann::json& content) {
  if (plan.format == bench::Format::csv) return bench::stage_csv(rows);
  if (plan.format == bench::Format::json) return dump(content, 2) + "\n";
  return bench::run_summary(content.at("machine"), content.at("settings")) + "\n\n" +
         bench::stage_markdown(rows, plan.video_steps);
}

std::vector<bench::StageRow> measure(const bench::PipelinePlan& plan, const models::GenerateSettings& resolved,
                                     models::Pipeline& pipeline, RunProgress& progress,
                                     const std::vector<bench::StageRow>& rivals, nlohmann::json& written_rows) {
  bench::PipelineStages stages(plan, resolved, pipeline, progress);
  std::vector<bench::StageRow> rows;
  for (const auto stage : {&bench::PipelineStages::measure_text, &bench::PipelineStages::measure_steps,
                           &bench::PipelineStages::measure_decode, &bench::PipelineStages::measure_encode}) {
    (stages.*stage)();
    rows = stages.rows();
    rows.insert(rows.end(), rivals.begin(), rivals.end());
    bench::compare_steps(rows, plan.video_steps);
    written_rows = bench::stage_json(rows);
  }
  return rows;
}

/// One a contender that leaves blocks out: layers down, steps across.
std::vector<HeatMap> heat_maps(const std::vector<bench::StageRow>& rows) {
  std::vector<HeatMap> maps;
  for (const bench::StageRow& row : rows) {
    if (row.step_layer_sparsity.empty() || row.mode == "full" || row.mode == "quantized") continue;
    HeatMap map{.title = "sparsity, " + row.mode, .rows = "layer", .columns = "step", .values = {}};
    std::string name = bench::selection_name(bench::selection_fields(row.selection));
    if (row.selection.topk) name.insert(0, "topk ");
    if (!name.empty()) map.title += " " + name;
    map.title += ", " + row.token_order + " order";
    if (!row.cache.empty()) map.title += ", cache " + row.cache;
    map.values.resize(row.layer_sparsity.size());
    for (const std::vector<double>& step : row.step_layer_sparsity)
      for (size_t layer = 0; layer < step.size(); ++layer) map.values[layer].push_back(step[layer]);
    maps.push_back(std::move(map));
  }
  return maps;
}

}  // namespace

void add_bench_pipeline_options(CLI::App& command, bench::PipelineOptions& options) {
  const OptionGroup what(command, "What to measure");
  const OptionGroup measuring(command, "Measuring");
  const OptionGroup output(command, "Output and reports");
  what.add("--modes", options.modes, "comma list (default full,quantized,sparse)", "MODES");
  bench::add_selection_lists(what, options.sparse, "as generate");
  what.add("--token-order", options.token_orders,
           "of mode sparse: comma list of hilbert, native, time-major, morton, random (default hilbert)", "ORDERS");
  what.add("--cache", options.caches, "comma list (default: as generate); 0 is none", "CACHES");
  what.flag("--no-decode", options.no_decode, "leave decoding, and with it frames and their quality, out");
  output.add("--heat-map", options.heat_map, "draw the sparsity of each layer and step into this .png", "FILE");
  what.add("--against", options.against, "add the rows of a rival's report (tests/bench/diffusers_report.py)", "FILE");
  measuring.add("--steps", options.steps,
                "steps of each run, all timed (default 4, with a cache the model's number; quality needs that)", "N");
  measuring.add("--warmup", options.warmup, "steps that do not count (default 2, on a CPU 1)", "N");
  measuring.add("--repetitions", options.repetitions, "runs over all steps that count (default 3, on a CPU 1)", "N");
  output.add("--format", options.format, "of the tables (default: by the output's ending, else md)", "md,csv,json");
  output.add("-o,--output", options.output, "write the tables to this file in place of stdout", "FILE");
}

void bench_pipeline(const Settings& settings, const bench::PipelineOptions& options, RunReport& report) {
  bench::PipelinePlan plan = bench::make_pipeline_plan(settings, options);
  if (!plan.heat_map.empty()) check_png("--heat-map", plan.heat_map);
  std::optional<models::AtomicFile> output;
  if (!options.output.empty()) output.emplace(options.output);
  if (plan.run.threads) at::set_num_threads(static_cast<int>(*plan.run.threads));
  const models::ModelFolder folder = open_model(plan.run);
  const auto pipeline = open_pipeline(plan.run, folder);
  choose_steps(options, pipeline->spec(), plan);
  if (plan.profile) check_profile(*plan.profile, plan.run.model, *pipeline);
  const models::GenerateSettings resolved = pipeline->resolve(plan.request);
  add_model_warnings(plan.warnings, settings, plan.request, resolved, *pipeline);
  for (const bench::PipelineContender& contender : plan.contenders)
    add_cache_warning(plan.warnings, settings, options.caches.has_value(), plan.request_of(contender),
                      pipeline->spec());
  report_warnings(plan.warnings, report);
  report_left_out(plan.left_out, report);
  report.content["machine"] = machine_report(pipeline->device());
  report.content["settings"] = settings_report(plan, resolved, *pipeline);
  report.content["architecture"] = bench::architecture_of(folder);
  std::vector<bench::StageRow> rivals;
  if (!options.against.empty()) rivals = bench::read_rival(options.against, report.content["settings"]);

  const c10::InferenceMode guard;
  const c10::OptionalDeviceGuard device(pipeline->device().is_cpu() ? std::nullopt : std::optional(pipeline->device()));
  RunProgress progress(!plan.run.quiet, report,
                       "run the same command again; --json and --report hold the stages that were done");
  const std::vector<bench::StageRow> rows =
      measure(plan, resolved, *pipeline, progress, rivals, report.content["rows"] = nlohmann::json::array());
  progress.clear();
  if (!plan.heat_map.empty()) write_heat_maps(plan.heat_map, heat_maps(rows));
  deliver(render(plan, rows, report.content), options.output, output, rows.size(), report);
}

}  // namespace sparsereel::app
