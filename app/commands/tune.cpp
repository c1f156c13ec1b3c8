// `sparsereel tune`: declares the options, searches, and writes the profile and the report. app/lab/tune/ holds the
// search.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "app/called_program.h"
#include "app/commands/commands.h"
#include "app/jobs/image.h"
#include "app/jobs/used_files.h"
#include "app/jobs/write.h"
#include "app/lab/measure/run_progress.h"
#include "app/lab/tune/result.h"
#include "app/lab/tune/session.h"
#include "app/lab/tune/state.h"
#include "app/options/option_group.h"
#include "app/options/tiny_model.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/files/sha256.h"
#include "models/layers/cpu_threads.h"
#include "models/layers/fp8.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using tuning::Found;
using tuning::TunePlan;

/// Returns a key that covers everything on which videos and measurements depend, apart from the goal. A saved search
/// resumes only if its key is equal. The recipe in the key covers what changes the frames; how files are written does
/// not matter.
std::string search_key(const TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline) {
  GenerateOptions video;
  video.run = plan.run;
  video.run.output = kDefaultOutput;
  video.run.video = {};
  video.run.metadata = true;
  models::Plan sparse = untuned;
  sparse.attention_mode = attention::Mode::sparse;  // so that the recipe contains the untuned policy
  const bool offload = plan.request.offload == models::Offload::on && !pipeline.device().is_cpu();
  constexpr int kFormat = 4;  // version of the search's file; increase it if the form of the file changes
  const nlohmann::json key = {
      {"format", kFormat},
      {"video", recipe_identity(make_recipe(video, sparse, pipeline, *plan.pictures), sparse, video.run)},
      {"prompts", plan.prompts},
      {"machine", device_name(pipeline.device())},  // because the file of the search holds times of this machine
      {"offload", offload},                         // because times depend on it
      {"bounds", {plan.bounds.l1, plan.bounds.l2, plan.bounds_asked}},
      {"samples", plan.samples},
      {"heads_alone", plan.videos == 0}};
  return models::sha256(dump(key));
}

tuning::SearchLimits limits_of(const TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline) {
  std::vector<int64_t> latents = models::latents_shape(pipeline.spec(), untuned.latent);
  // The state holds only the latent frames that are decoded; latents_shape() also counts padding.
  latents[static_cast<size_t>(models::frames_axis(pipeline.spec().layout))] = untuned.latent.frames;
  return {.layers = static_cast<size_t>(pipeline.spec().layers),
          .heads = static_cast<size_t>(pipeline.spec().heads),
          .prompts = static_cast<int64_t>(plan.prompts.size()),
          .steps = untuned.num_inference_steps,
          .latents = std::move(latents)};
}

void write_profile(const fs::path& path, const attention::Profile& profile) {
  const std::string text = attention::to_yaml(profile);
  models::AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

/// Throws Error unless `path` may be replaced: it holds a profile, is empty or does not exist. `what` begins the error.
void check_profile_output(const std::string& what, const fs::path& path) {
  const models::AtomicFile probe(path);
  if (!fs::exists(path) || fs::is_empty(path)) return;
  try {
    models::read_profile(path);
  } catch (const Error&) {
    throw bad_input(what + " holds something other than a profile", "choose another name with --output");
  }
}

/// Checks the output files before the search spends any time.
void check_profile_outputs(const TunePlan& plan) {
  check_profile_output("--output " + plan.output.string(), plan.output);
  const fs::path missed = tuning::missed_beside(plan.output);
  if (plan.videos > 0)
    check_profile_output(missed.string() + " is the file for a profile that misses the goal, but it", missed);
}

/// Opens a pipeline for each kind of weights that may be chosen, and for the reference. Skips 8-bit weights that a CPU
/// would emulate, unless their times come from another machine.
tuning::Pipelines open_pipelines(TunePlan& plan, const models::Checkpoint& folder) {
  models::Request request = plan.request;
  const std::string reference_weights = request.weights;
  tuning::Pipelines pipelines = {{reference_weights, models::Pipeline::open(folder, request)}};
  const auto& reference = pipelines.begin()->second;
  const bool emulated = reference->device().is_cpu() && !plan.times && plan.axes.weights.size() > 1;
  if (plan.videos == 0) return pipelines;
  const bool given = plan.axes.weights.size() == 1;
  if (!given && !plan.times)
    std::ranges::replace(plan.axes.weights, std::string("fp8"), models::faster_8_bits(reference->device()));
  for (const std::string& weights : plan.axes.weights) {
    if (pipelines.contains(weights) || emulated) continue;
    request.weights = weights;
    auto pipeline = models::Pipeline::open(folder, request);
    if (pipeline->why_weights_have_no_effect().empty())
      pipelines[weights] = std::move(pipeline);
    else if (given)
      plan.warnings.push_back("--weights " + weights + " has no effect " + pipeline->why_weights_have_no_effect());
  }
  std::erase_if(plan.axes.weights, [&](const std::string& weights) { return !pipelines.contains(weights); });
  if (plan.axes.weights.empty()) plan.axes.weights = {reference_weights};
  return pipelines;
}

/// Returns a command that uses the profile: "sparsereel generate -m folder -p "..." --profile profile.yaml".
std::string command_with(const Settings& settings, const fs::path& profile) {
  std::string command = called_program() + " generate";
  for (const OptionSpec& spec : option_table()) {
    const Setting* setting = takes(Command::tune, spec) ? settings.find(spec.key()) : nullptr;
    const bool given = setting != nullptr && setting->source == Source::command_line;
    static const std::set<std::string> left_out = {"prompt", "prompt_file", "report", "quiet", "json", "threads"};
    if (!given || is_of_a_preset(spec.option) || left_out.contains(spec.key())) continue;
    command += " " + option_name(spec.key());
    command += spec.kind() == ValueKind::flag ? "" : " " + shell_quoted(setting->value);
  }
  return command + " -p \"...\" --profile " + shell_quoted(profile);
}

/// Reads the results that earlier runs of this search saved beside the profile. Adds a warning for each other search
/// that is saved there.
tuning::OwnState find_own_state(TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline) {
  const auto new_head = [&](std::optional<double> topk) {
    attention::HeadPolicy head = untuned.attention_policy.defaults;
    if (topk) head.topk = *topk;
    if (topk) head.selection = attention::Selection::topk;
    return attention::HeadSearch(head, plan.bounds);
  };
  tuning::OwnState own = tuning::find_state(plan.output, search_key(plan, untuned, pipeline), new_head,
                                            limits_of(plan, untuned, pipeline));
  for (const fs::path& other : own.others)
    plan.warnings.push_back(other.string() + " holds a search with other settings and is kept; this search uses " +
                            own.path.string());
  return own;
}

std::vector<std::string> warnings_of_search(const TunePlan& plan, const Found& found,
                                            const attention::Profile& profile) {
  std::vector<std::string> warnings = tuning::warnings_of(plan, found, profile);
  if (!plan.heat_map.empty() && !found.heads)
    warnings.push_back("--heat-map draws nothing, because heads get no blocks of their own: " + found.no_heads);
  return warnings;
}

/// Adds the option of the prompts, and the options of the goal.
void add_goal_options(CLI::App& command, tuning::TuneOptions& options) {
  command
      .add_option(
          "FILE", options.prompts,
          packed({.help = "prompts to tune on: .txt, .jsonl, .csv or .yaml (else --prompt)",
                  .manual = R"(Names the prompts to tune on; - is standard input. Use prompts like those that you will
                      render, and check the profile on others with 'bench quality'. Without a file the prompt of -p is
                      used.)",
                  .example = "sparsereel tune prompts.txt -m MODEL --budget 1h"}))
      ->type_name("FILE");
  const OptionGroup goal(command, "What is asked for");
  goal.add(
      "--min-psnr", options.min_psnr,
      {.help = "find the fastest setting with at least this PSNR, in dB",
       .manual = R"(Asks for the fastest setting whose videos reach this PSNR against those of full attention, in dB.
           Higher is closer. Without a goal, tune asks for a mean of 40 dB, and 36 dB for the worst prompt. If no
           setting reaches the goal, the exit code is 1.)",
       .example = "sparsereel tune prompts.txt --min-psnr 35 -o profile.yaml"},
      "X");
  goal.add(
      "--percentile", options.percentile,
      {.help = "let --min-psnr bound this percentile, such as 5, not the mean",
       .manual =
           R"(Asks that --min-psnr holds for the given percentile of the prompts in place of their mean: with 5, 95%
           of the videos reach it. 0 is the worst video. The result says how sure this is for other prompts, which
           depends on the number of compared prompts. If all of 59 prompts reach the goal, the 5th percentile is 95%
           sure.)",
       .example = "sparsereel tune prompts.txt --min-psnr 35 --percentile 5 --videos 59"},
      "P");
  goal.add("--min-ssim", options.min_ssim,
           {.help = "find the fastest setting with at least this SSIM, up to 1",
            .manual = R"(Asks for the fastest setting whose videos reach this structural similarity to those of full
                attention; 1 is identical. It can be combined with --min-psnr.)",
            .example = "sparsereel tune prompts.txt --min-ssim 0.95"},
           "X");
  goal.add("--at-most", options.at_most,
           {.help = "find the highest fidelity within so many seconds a video",
            .manual = R"(Asks for the setting of highest fidelity that denoises a video in so many seconds. The times
                are those of this machine, or of --times.)",
            .example = "sparsereel tune prompts.txt -m MODEL --at-most 60"},
           "SECONDS");
}

/// Adds the options that say how long and how thoroughly to search.
void add_search_options(CLI::App& command, tuning::TuneOptions& options) {
  const OptionGroup search(command, "Search");
  search.add(
      "--budget", options.budget,
      {.help = "time for the whole search: 90s, 10m, 1h30m (default 10m)",
       .manual = R"(Sets the time for the search as a whole. When it ends, the best setting found so far is written.
           The same command continues the search where it stopped.)",
       .example = "sparsereel tune prompts.txt -m MODEL --budget 1h30m"},
      "TIME");
  search.add(
      "--videos", options.videos,
      {.help = "compare videos of the first N prompts; 0: none (default 4)",
       .manual = R"(Sets on how many prompts videos are compared. Each prompt costs one video of full attention; more
           prompts make the result safer. With 0 no videos are made, and only the heads of attention are measured.)",
       .example = "sparsereel tune prompts.txt -m MODEL --videos 8 --budget 2h"},
      "N");
  search.add(
      "--times", options.times,
      {.help = "take times from reports of bench pipeline for another model",
       .manual = R"(Takes the times of steps from JSON reports of 'bench pipeline' in place of measuring them. So a
           small model, which shows the quality, can be tuned for the speed of a large one. Heads then get no settings
           of their own.)",
       .example = "sparsereel tune prompts.txt --times large.json",
       .in_help = InHelp::all},
      "FILE,FILE");
  search.add(
      "--samples", options.samples,
      {.help = "steps of each run in which heads are measured (default 6)",
       .manual = R"(Sets in how many steps of each prompt's run the heads are measured. More steps take longer and
           represent the run better.)",
       .example = "sparsereel tune prompts.txt --samples 10",
       .in_help = InHelp::all},
      "N");
}

/// Adds the options of the bounds for heads, and of the files to write.
void add_profile_options(CLI::App& command, tuning::TuneOptions& options) {
  const OptionGroup search(command, "Search");
  search.add(
      "--l1", options.l1,
      {.help = "largest error of a head from dropped blocks (default 0.06)",
       .manual = R"(Bounds the relative L1 error that leaving out blocks may cause in a head. A bound that you give
           holds in every measured call. The default, 0.06, holds only on average, and heads then get their own
           numbers of blocks only where that is not slower.)",
       .example = "sparsereel tune prompts.txt --l1 0.05 --l2 0.06",
       .in_help = InHelp::all},
      "X");
  search.add("--l2", options.l2,
             {.help = "largest error of a head if P.V is skipped too (default 0.065)",
              .manual = R"(Bounds the relative L1 error of a head if products with V are skipped as well, as with
                  --pv-threshold. The rules of --l1 apply.)",
              .example = "sparsereel tune prompts.txt --l1 0.05 --l2 0.06",
              .in_help = InHelp::all},
             "X");
  const OptionGroup output(command, "Output and reports");
  output.add("-o,--output", options.output,
             {.help = "profile to write (default profile.yaml)",
              .manual = R"(Names the profile to write, which generate --profile uses. Until the search is complete,
                  its progress is in profile.yaml.search beside the profile. If no setting reaches the goal, the best
                  one is written to profile.missed.yaml.)",
              .example = "sparsereel tune prompts.txt -o profile.yaml"},
             "FILE");
  output.add("--heat-map", options.heat_map,
             {.help = "draw the sparsity of each layer and head (.png, .svg, .pdf)",
              .manual = "Draws how many blocks each head of each layer leaves out. It needs gnuplot.",
              .example = "sparsereel tune prompts.txt --heat-map heads.png",
              .in_help = InHelp::all},
             "FILE");
}

/// Returns the plan of a video without a profile, with the images of the request. Adds the warnings about it.
models::Plan resolve_untuned(const Settings& settings, TunePlan& plan, const models::Pipeline& pipeline) {
  settle_images(settings, pipeline.spec(), plan.request, *plan.pictures);
  models::Plan untuned = pipeline.resolve(plan.request, /*decode=*/plan.videos > 0);
  check_image_shapes(untuned, pipeline.spec(), *plan.pictures);
  add_model_warnings(plan.warnings, settings, plan.run.model, plan.request, untuned, pipeline);
  if (std::string unknown = unknown_words_warning(plan.run.model, plan.prompts); !unknown.empty())
    plan.warnings.push_back(std::move(unknown));
  return untuned;
}

/// Searches, writes the profile and fills the report. Results are kept in a file beside the profile until the search is
/// complete. Throws Error if options are out of range, or if the budget ends before anything was compared.
void tune(const Settings& settings, const tuning::TuneOptions& options, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  TunePlan plan = tuning::make_tune_plan(settings, options);
  if (!plan.heat_map.empty()) check_chart("--heat-map", plan.heat_map);
  check_profile_outputs(plan);
  if (plan.run.threads) models::set_threads(static_cast<int>(*plan.run.threads));
  const models::Checkpoint folder = open_and_say(plan.run);
  const tuning::Pipelines pipelines = open_pipelines(plan, folder);
  const auto& pipeline = pipelines.begin()->second;
  say_terms(plan.run, pipeline->spec());
  check_sparse_runs(*pipeline);
  pipeline->model_hash();  // computed and stored now, before the model's files can change
  const models::Plan untuned = resolve_untuned(settings, plan, *pipeline);
  report_run(pipeline->device(), report);

  const c10::InferenceMode guard;
  const c10::OptionalDeviceGuard device(pipeline->device().is_cpu() ? std::nullopt : std::optional(pipeline->device()));
  tuning::OwnState own = find_own_state(plan, untuned, *pipeline);
  report_warnings(plan.warnings, report);
  const size_t resumed_samples = own.state.heads.sampled.size();
  const int64_t resumed_videos = own.state.video_count();
  RunProgress progress(
      !plan.run.quiet, report,
      "what was measured so far is in " + own.path.string() + "; run the same command again to continue");
  const tuning::Deadline deadline(start, plan.budget_seconds);
  const tuning::TuneContext context{plan, untuned, pipelines, progress, deadline, own};
  const Found found = tuning::Session(context).run();
  progress.clear();

  const attention::Profile profile = tuning::make_profile(plan, untuned, *pipeline, found);
  const std::string missed = tuning::missed_goal(plan, found);
  const fs::path output = missed.empty() ? plan.output : tuning::missed_beside(plan.output);
  write_profile(output, profile);
  std::error_code ignored;
  if (found.complete && missed.empty()) fs::remove(own.path, ignored);
  std::vector<std::string> warnings = warnings_of_search(plan, found, profile);
  print_warnings(warnings);
  warnings.insert(warnings.begin(), plan.warnings.begin(), plan.warnings.end());
  report.content["tune"] = tuning::found_report(plan, found, profile, own.state);
  report.content["tune"].update({{"resumed_samples", resumed_samples}, {"resumed_videos", resumed_videos}});
  report.content["profile"] = output.string();
  report.content["use"] = command_with(settings, output);
  report.content["seconds"] = {{"budget", plan.budget_seconds}, {"total", deadline.elapsed()}};
  report.content["warnings"] = warnings;
  report.last_line = tuning::summary(plan, found, profile, output, deadline.elapsed()) + "\n" +
                     report.content["use"].get<std::string>();
  if (!plan.heat_map.empty() && found.heads) {
    if (missed.empty()) show_last_line(report);  // now, because drawing may fail
    write_heat_maps(plan.heat_map, profile.model + ", " + text_of(report.content["machine"], "name"),
                    {tuning::heat_map(profile)});
  }
  if (missed.empty()) return;
  report.recovery.clear();  // the error below says how to continue
  throw run_failure(
      plan.output.string() + " is not written: " + missed,
      "the best setting that was found is in " + output.string() +
          (found.complete ? "; use it, or lower the goal" : "; run the same command again to search longer"));
}

/// Returns the files of options that only this command has.
std::vector<NamedFile> files_of_tune(const tuning::TuneOptions& options) {
  std::vector<NamedFile> files = {
      {"--output", options.output, true},
      {"the profile that misses what is asked for", tuning::missed_beside(options.output), true},
      {"--heat-map", options.heat_map, true},
      {"the file of prompts", options.prompts}};
  for (const std::string& times : split(options.times, ',')) files.push_back({"--times", times});
  for (const fs::path& state : tuning::states_beside(options.output))
    files.push_back({"the search beside --output", state, true});
  return files;
}

}  // namespace

void add_tune(CLI::App& program, CommandLine& line) {
  CLI::App* command = program.add_subcommand("tune", "Finds the fastest settings for your model that keep its quality");
  command->footer("sparsereel tune prompts.txt -m MODEL --min-psnr 35 --budget 1h");
  const auto options = std::make_shared<tuning::TuneOptions>();
  add_goal_options(*command, *options);
  add_search_options(*command, *options);
  add_profile_options(*command, *options);
  add_shared_options(*command, line, Command::tune);
  command->callback([&line, options] {
    line.collect(PresetUse::blocks_alone);
    line.check_files(Command::tune, files_of_tune(*options));
    line.start("tune");
    tune(line.settings, *options, line.report);
  });
}

}  // namespace sparsereel::app
