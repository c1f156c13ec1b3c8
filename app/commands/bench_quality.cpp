// Options, runs, report; the parts are in bench/quality_*.
#include "app/commands/bench_quality.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "app/commands/bench/quality_runs.h"
#include "app/commands/bench/run_settings.h"
#include "app/commands/bench_plot.h"
#include "app/counted.h"
#include "app/measure/table.h"
#include "app/measure/whole_videos.h"
#include "app/options/option_group.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using bench::QualityPlan;
using bench::QualityRow;

void check_profiles(const QualityPlan& plan, const models::Pipeline& pipeline) {
  for (const TunedProfile& profile : plan.profiles) check_profile(profile, plan.run.model, pipeline);
}

/// The judge where one is there and a prompt tells something that it can see.
std::optional<bench::Judge> find_judge(const QualityPlan& plan, bool asked) {
  if (plan.judge.empty()) return {};
  const bool tells = std::any_of(plan.prompts.begin(), plan.prompts.end(), [](const std::string& prompt) {
    const bench::Traits traits = bench::traits_of(prompt);
    return std::any_of(traits.begin(), traits.end(), [](int trait) { return trait >= 0; });
  });
  if (tells) return bench::Judge(plan.judge);
  if (asked)
    throw bad_input("--judge " + plan.judge.string() + ": no prompt tells a shape, colour, background or motion",
                    "leave it out, or use prompts of the tiny model (assets/prompts)");
  return {};
}

/// The folder that is to hold one picture a video.
void check_pictures(const fs::path& folder) {
  if (folder.empty()) return;
  if (fs::exists(folder) && !fs::is_directory(folder))
    throw bad_input("--pictures " + folder.string() + ": this is no folder", "name a folder, which may be new");
  const fs::path parent = fs::absolute(folder).parent_path();
  if (!fs::is_directory(parent))
    throw bad_input("--pictures " + folder.string() + ": there is no folder " + parent.string(), "make it first");
  check_contact_sheet(parent / "full.png");
}

std::string file_name(size_t index, std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  const size_t first = name.find("--");
  for (size_t at = first; at != std::string::npos; at = name.find("--")) name.erase(at, 1);
  return (index < 10 ? "0" : "") + std::to_string(index) + "-" + name + ".png";
}

void write_pictures(const fs::path& folder, const std::vector<bench::Picture>& pictures) {
  if (folder.empty()) return;
  fs::create_directory(folder);
  for (size_t i = 0; i < pictures.size(); ++i) {
    const at::Tensor frames = pictures[i].frames.contiguous();
    const FramesView view = {.data = frames.const_data_ptr<float>(),
                             .frames = frames.size(0),
                             .height = frames.size(1),
                             .width = frames.size(2)};
    write_contact_sheet(folder / file_name(i, pictures[i].name), view, pictures[i].name, frames.size(0));
  }
}

nlohmann::json settings_report(const QualityPlan& plan, const models::GenerateSettings& resolved,
                               const models::Pipeline& pipeline, bool judged) {
  models::GenerateRequest request = plan.request;
  const auto& rows = plan.grid.combinations;
  const auto sparse = std::ranges::find_if(rows, [](const auto& row) { return !row.full; });
  if (sparse != rows.end()) request.attention_policy = sparse->policy;
  nlohmann::json settings = bench::run_settings(plan.run, request, resolved, pipeline);
  settings["prompts"] = plan.prompts.size();
  settings["dense_layers"] = request.attention_policy.dense_layers;
  settings["judge"] = judged ? nlohmann::json(plan.judge.string()) : nlohmann::json();
  return settings;
}

nlohmann::json full_report(const bench::QualityRuns& runs) {
  nlohmann::json full = {
      {"step_ms", or_null(runs.full_step_ms())}, {"in_turns", !runs.reduces_weights()}, {"judge", nullptr}};
  if (runs.full_verdicts()) {
    full["judge"] = runs.full_verdicts()->share();
    full["judge_counts"] = bench::verdict_json(*runs.full_verdicts());
  }
  return full;
}

/// "full attention: 612 ms a step, the judge is right for 20 of 20 prompts"
std::string full_summary(const bench::QualityRuns& runs) {
  std::string text;
  if (runs.full_step_ms()) text += number_text(*runs.full_step_ms(), 4, Style::people) + " ms a step";
  if (runs.full_step_ms() && runs.reduces_weights())
    text += " (timed after the rows, not in turns with them: so clock drift affects x full)";
  if (runs.full_verdicts())
    text += (text.empty() ? "" : ", ") + std::string("the judge is right for ") +
            std::to_string(runs.full_verdicts()->right) + " of " + counted(runs.full_verdicts()->prompts, "prompt");
  const std::string weights = runs.reduces_weights() ? " without fp8" : "";
  return text.empty() ? text : "full attention" + weights + ": " + text + "\n";
}

std::string render(const QualityPlan& plan, const bench::QualityRuns& runs, const nlohmann::json& content) {
  if (plan.format == bench::Format::csv) return bench::quality_csv(runs.rows());
  if (plan.format == bench::Format::json) return dump(content, 2) + "\n";
  return bench::run_summary(content.at("machine"), content.at("settings")) + ", means over " +
         counted(static_cast<int64_t>(plan.prompts.size()), "prompt") + "\n" + full_summary(runs) + "\n" +
         bench::quality_markdown(runs.rows());
}

/// Whose weights are in the run's dtype.
std::shared_ptr<models::Pipeline> open_reference(RunOptions run, const models::ModelFolder& folder,
                                                 const std::shared_ptr<models::Pipeline>& pipeline) {
  if (!pipeline->fp8_weights() && !pipeline->fp8_text_weights()) return pipeline;
  run.weights = run.text_weights = "auto";
  return open_pipeline(run, folder);
}

void measure(bench::QualityRuns& runs, RunReport& report) {
  using bench::QualityRuns;
  for (const auto stage :
       {&QualityRuns::encode_prompts, &QualityRuns::denoise, &QualityRuns::time_steps, &QualityRuns::compare}) {
    (runs.*stage)();
    report.content["rows"] = bench::quality_json(runs.rows());
    report.content["full"] = full_report(runs);
  }
  const std::vector<QualityRow> rows = runs.rows();
  if (std::all_of(rows.begin(), rows.end(), [](const QualityRow& row) { return row.prompts.empty(); }))
    throw run_failure("nothing could be measured: " + rows.front().note, "choose other combinations");
}

void add_lists(CLI::App& command, bench::QualityLists& lists) {
  const OptionGroup group(command, "Comma lists, expanded to all combinations");
  bench::add_selection_lists(group, lists.selection, "as generate");
  group.add("--selection-rows", lists.selection.selection_rows,
            "comma list: queries that share one selection, of 64, 128, 192", "N,N");
  group.add("--similarity", lists.selection.similarity, "comma list: blocks less self-similar than this stay dense",
            "X,X");
  group.add("--profile", lists.profile,
            "comma list: profiles of 'sparsereel tune', which say all of this for each head", "FILE,FILE");
  group.add("--dense-steps", lists.dense_steps, "comma list: the first steps keep every block", "N,N");
  group.add("--token-order", lists.token_order, "comma list of hilbert, native, time-major, morton, random", "ORDERS");
  group.add("--cache", lists.cache, "comma list (default: as generate); 0 is none", "CACHES");
  group.add("--modes", lists.modes, "comma list of full, sparse (default sparse; fp8 adds full without a cache)",
            "MODES");
}

}  // namespace

void add_bench_quality_options(CLI::App& command, bench::QualityOptions& options) {
  const OptionGroup measuring(command, "Measuring");
  const OptionGroup output(command, "Output and reports");
  command
      .add_option("PROMPTS", options.prompts, "prompts: .txt (one a line), .jsonl, .csv, .yaml; - is standard input")
      ->type_name("FILE")
      ->required();
  add_lists(command, options.lists);
  measuring.add("--limit", options.limit, "only the first N prompts", "N");
  measuring.add("--timed-steps", options.timed_steps,
                "steps to time, in turns with full attention; 0: none (default: all of the first prompt's)", "N");
  measuring.flag("--no-rel-l1", options.no_rel_l1,
                 "leave the error of attention out, for which each call is made twice");
  measuring.add("--judge", options.judge,
                "network that reads shapes off the tiny model's videos (default: MODEL-training/judge.safetensors, as "
                "in the source tree)",
                "FILE");
  output.add("--plot", options.plot, "draw PSNR against the time of a step into this .png", "FILE");
  output.add("--pictures", options.pictures, "write frames of the first prompt's videos into this folder", "DIR");
  output.add("--format", options.format, "of the table (default: by the output's ending, else md)", "md,csv,json");
  output.add("-o,--output", options.output, "write the table to this file in place of stdout", "FILE");
}

void bench_quality(const Settings& settings, const bench::QualityOptions& options, RunReport& report) {
  QualityPlan plan = bench::make_quality_plan(settings, options);
  if (!plan.plot.empty()) check_png("--plot", plan.plot);
  check_pictures(plan.pictures);
  std::optional<models::AtomicFile> output;
  if (!options.output.empty()) output.emplace(options.output);
  const std::optional<bench::Judge> judge = find_judge(plan, !options.judge.empty());
  if (plan.run.threads) at::set_num_threads(static_cast<int>(*plan.run.threads));
  const models::ModelFolder folder = open_model(plan.run);
  const auto pipeline = open_pipeline(plan.run, folder), reference = open_reference(plan.run, folder, pipeline);
  check_profiles(plan, *pipeline);
  const std::vector<bench::Combination>& combinations = plan.grid.combinations;
  if (std::ranges::any_of(combinations, [](const auto& each) { return !each.full; })) check_sparse_runs(*pipeline);
  pipeline->check_weights();
  const models::GenerateSettings resolved = pipeline->resolve(plan.request);
  add_model_warnings(plan.warnings, settings, plan.request, resolved, *pipeline);
  for (const bench::Combination& combination : combinations)
    add_cache_warning(plan.warnings, settings, options.lists.cache.has_value(),
                      plan.request_of(0, combination, attention::Mode::sparse), pipeline->spec());
  report_warnings(plan.warnings, report);
  report_left_out(plan.grid.left_out, report);
  report.content["machine"] = machine_report(pipeline->device());
  report.content["architecture"] = bench::architecture_of(folder);
  report.content["settings"] = settings_report(plan, resolved, *pipeline, judge.has_value());

  const c10::InferenceMode guard;
  const c10::OptionalDeviceGuard device(pipeline->device().is_cpu() ? std::nullopt : std::optional(pipeline->device()));
  RunProgress progress(!plan.run.quiet, report,
                       "run the same command again; --json and --report hold the stages that were done");
  bench::QualityRuns runs(plan, resolved, *pipeline, *reference, progress, judge ? &*judge : nullptr);
  measure(runs, report);
  progress.clear();
  if (!plan.plot.empty()) write_curves(plan.plot, curves_of(report.content, "this run"));
  write_pictures(plan.pictures, runs.pictures());
  deliver(render(plan, runs, report.content), options.output, output, runs.rows().size(), report);
}

}  // namespace sparsereel::app
