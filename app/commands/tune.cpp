// Options, search, profile, report; the parts are in tune/.
#include "app/commands/tune.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cmath>

#include "app/commands/tune/session.h"
#include "app/counted.h"
#include "app/job/write.h"
#include "app/measure/run_progress.h"
#include "app/measure/table.h"
#include "app/media/plot.h"
#include "app/options/option_group.h"
#include "attention/policies/profile.h"
#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/files/sha256.h"
#include "models/weights/device.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using tuning::Found;
using tuning::TunePlan;

attention::ProfileSetting made_with(const models::Plan& untuned) {
  return {.width = untuned.width,
          .height = untuned.height,
          .frames = untuned.num_frames,
          .steps = untuned.num_inference_steps,
          .token_order = std::string(hilbert::name(untuned.token_order)),
          .device = untuned.device,
          .dtype = untuned.dtype};
}

/// All that the samples depend on: a search goes on only where that is the same. What makes a video is the recipe's
/// to know; how its file is written is no matter here.
std::string search_key(const TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline) {
  GenerateOptions video;
  video.run = plan.run;
  video.run.output = kDefaultOutput;
  video.run.video = {};
  video.run.metadata = true;
  models::Plan sparse = untuned;
  sparse.attention_mode = attention::Mode::sparse;  // whose recipe has the untuned policy
  const bool offload = plan.request.offload && !pipeline.device().is_cpu();
  const nlohmann::json key = {{"video", recipe_identity(make_recipe(video, sparse, pipeline), sparse, video.run)},
                              {"prompts", plan.prompts},
                              {"machine", device_name(pipeline.device())},  // of the times
                              {"offload", offload},                         // likewise
                              {"bounds", {plan.bounds.l1, plan.bounds.l2, plan.bounds_asked}},
                              {"samples", plan.samples},
                              {"videos", plan.videos}};
  return models::sha256(dump(key));
}

tuning::SearchLimits limits_of(const TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline) {
  std::vector<int64_t> latents = models::latents_shape(pipeline.spec(), untuned.latent);
  latents[static_cast<size_t>(models::frames_axis(pipeline.spec().layout))] = untuned.latent.frames;  // as they decode
  return {.layers = static_cast<size_t>(pipeline.spec().layers),
          .heads = static_cast<size_t>(pipeline.spec().heads),
          .prompts = static_cast<int64_t>(plan.prompts.size()),
          .steps = untuned.num_inference_steps,
          .latents = std::move(latents)};
}

attention::ProfileQuality quality(const std::optional<tuning::VideoFigures>& figures, double speedup) {
  if (!figures) return {};
  return {.psnr = figures->psnr, .ssim = figures->ssim, .speedup = speedup};
}

/// The bounds that the heads keep: of a profile that keeps untuned heads for their speed these are wider than planned.
attention::Bounds kept_bounds(const TunePlan& plan, const attention::Profile& profile) {
  double worst = 0;
  for (const auto& layer : profile.heads)
    for (const attention::ProfileHead& head : layer) worst = std::max(worst, head.error);
  if (worst <= plan.bounds.l2) return plan.bounds;
  const double rounded_up = std::ceil(worst * 1e4) / 1e4;
  return {.l1 = rounded_up, .l2 = rounded_up};
}

attention::Profile make_profile(const TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline,
                                const Found& found) {
  attention::Profile profile;
  profile.model = plan.run.model_name;
  profile.model_sha256 = pipeline.model_hash();
  profile.made_with = made_with(untuned);
  profile.sparsity = 1 - found.work;
  profile.untuned_sparsity = 1 - found.untuned_work;
  const double speedup = found.tuned && found.untuned && found.tuned->step_seconds > 0
                             ? found.untuned->step_seconds / found.tuned->step_seconds
                             : 0;
  profile.quality = quality(found.tuned, speedup);
  profile.untuned = quality(found.untuned, 0);
  profile.dropped = untuned.attention_policy.dropped;
  profile.ranking = untuned.attention_policy.ranking;
  profile.cell = untuned.attention_policy.cell;
  profile.selection_rows = found.selection_rows;
  profile.dense = found.dense;
  double error = 0, count = 0;
  for (const auto& layer : found.heads) {
    profile.heads.emplace_back();
    for (const attention::HeadChoice& head : layer) {
      profile.heads.back().push_back({.policy = head.policy,
                                      .error = head.policy.dense ? 0 : head.trial.relative_l1(),
                                      .sparsity = head.policy.dense ? 0 : 1 - head.trial.work()});
      error += profile.heads.back().back().error;
      ++count;
    }
  }
  profile.error = count > 0 ? error / count : 0;
  profile.bounds = kept_bounds(plan, profile);
  return profile;
}

HeatMap heat_map(const attention::Profile& profile) {
  HeatMap map{.title = profile.model + ": sparsity of each head, dense steps and layers left aside",
              .rows = "layer",
              .columns = "head",
              .values = {}};
  for (const auto& layer : profile.heads) {
    map.values.emplace_back();
    for (const attention::ProfileHead& head : layer) map.values.back().push_back(head.sparsity);
  }
  return map;
}

std::vector<std::string> warnings_of(const TunePlan& plan, const Found& found, const attention::Profile& profile) {
  std::vector<std::string> warnings;
  int64_t beyond = 0;
  for (const auto& layer : profile.heads)
    for (const attention::ProfileHead& head : layer) beyond += head.error > plan.bounds.l2 ? 1 : 0;
  if (!found.fell_back.empty())
    warnings.push_back("the profile holds the untuned policy: " + found.fell_back);
  else if (beyond > 0)
    warnings.push_back(counted(beyond, "head") + " of the untuned policy exceed" + (beyond == 1 ? "s" : "") +
                       " the usual bounds: within them the profile would be slower (give --l1 to have it so)");
  if (!found.tuned)
    warnings.emplace_back("no whole videos were compared: dense_steps and dense_layers were not searched");
  else if (found.tuned->step_seconds > found.untuned->step_seconds)
    warnings.emplace_back("the profile is slower than the untuned policy, which does not keep what was asked for");
  if (!found.passed && !plan.floor_asked())
    warnings.emplace_back(
        "the videos stay below those of the untuned policy, which does not keep the bounds asked for");
  if (!found.complete)
    warnings.push_back("the budget ended before " + found.ended_before + "; the same command again goes on from there");
  return warnings;
}

/// How the videos miss the floor that was asked for; empty where they don't.
std::string missed_floor(const TunePlan& plan, const Found& found) {
  if (!plan.floor_asked()) return {};
  if (!found.tuned) return "no video was compared";
  if (found.passed) return {};
  std::string text;
  if (plan.min_psnr)
    text +=
        "PSNR " + fixed_below(found.tuned->psnr, *plan.min_psnr, 2) + " dB of --min-psnr " + exact_text(*plan.min_psnr);
  if (plan.min_ssim)
    text += (text.empty() ? "" : ", ") + std::string("SSIM ") + fixed_below(found.tuned->ssim, *plan.min_ssim, 4) +
            " of --min-ssim " + exact_text(*plan.min_ssim);
  return "the best videos reach " + text;
}

nlohmann::json found_report(const attention::Profile& profile, const Found& found, const tuning::TuneState& state,
                            size_t resumed_samples) {
  nlohmann::json report = {{"complete", found.complete},
                           {"resumed_samples", resumed_samples},
                           {"samples", state.sampled.size()},
                           {"videos", state.checked_videos},
                           {"error", profile.error},
                           {"sparsity", profile.sparsity},
                           {"untuned_sparsity", profile.untuned_sparsity},
                           {"dense_steps", profile.dense.steps},
                           {"dense_layers", profile.dense.layers},
                           {"fell_back", !found.fell_back.empty()}};
  const auto add = [&](const char* name, const std::optional<tuning::VideoFigures>& figures) {
    if (figures)
      report[name] = {{"psnr", figures->psnr}, {"ssim", figures->ssim}, {"step_ms", figures->step_seconds * 1000}};
  };
  add("tuned_videos", found.tuned);
  add("untuned_videos", found.untuned);
  for (const auto& layer : profile.heads) {
    nlohmann::json sparsities = nlohmann::json::array(), errors = nlohmann::json::array();
    for (const attention::ProfileHead& head : layer) {
      sparsities.push_back(head.sparsity);
      errors.push_back(head.error);
    }
    report["head_sparsity"].push_back(sparsities);
    report["head_relative_l1"].push_back(errors);
  }
  return report;
}

std::string summary(const fs::path& output, const attention::Profile& profile, double seconds) {
  std::string text = output.string() + ": sparsity " + fixed(profile.sparsity, 3) + " (untuned " +
                     fixed(profile.untuned_sparsity, 3) + "), relative L1 " + fixed(profile.error, 3);
  if (profile.quality.psnr > 0)
    text += ", PSNR " + fixed(profile.quality.psnr, 1) + " dB (untuned " + fixed(profile.untuned.psnr, 1) +
            "), steps " + fixed(profile.quality.speedup, 2) + " x as fast";
  return text + ", dense steps " + std::to_string(profile.dense.steps) + ", dense layers " +
         std::to_string(profile.dense.layers) + ", " + fixed(seconds, 0) + " s";
}

void write_profile(const fs::path& path, const attention::Profile& profile) {
  const std::string text = attention::to_yaml(profile);
  models::AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

/// An older profile is replaced; another file is not. `what`: how the error names the file.
void check_profile_output(const std::string& what, const fs::path& path) {
  const models::AtomicFile probe(path);
  if (!fs::exists(path) || fs::is_empty(path)) return;
  try {
    read_profile(path);
  } catch (const Error&) {
    throw bad_input(what + " holds something else than a profile", "choose another name with --output");
  }
}

/// Before any time is spent.
void check_profile_outputs(const TunePlan& plan) {
  check_profile_output("--output " + plan.output.string(), plan.output);
  const fs::path missed = tuning::missed_beside(plan.output);
  if (plan.floor_asked())
    check_profile_output(missed.string() + " is where a profile goes that misses the floor, and it", missed);
}

}  // namespace

void add_tune_options(CLI::App& command, tuning::TuneOptions& options) {
  const OptionGroup search(command, "Search");
  const OptionGroup output(command, "Output and reports");
  command
      .add_option("FILE", options.prompts,
                  "prompts to tune on: .txt, .jsonl, .csv or .yaml; - is standard input (else --prompt)")
      ->type_name("FILE");
  search.add("--budget", options.budget, "time for all of it: 90s, 10m, 1h30m (default 10m)", "TIME");
  search.add("--l1", options.l1,
             "most relative L1 of a head by its block selection (default 0.06, unless that makes it slower)", "X");
  search.add("--l2", options.l2, "the same with P.V skipped besides (default 0.065, likewise)", "X");
  search.add("--min-psnr", options.min_psnr,
             "dB that whole videos must reach against full attention, else exit code 1 (default: the untuned policy's)",
             "X");
  search.add("--min-ssim", options.min_ssim, "likewise", "X");
  search.add("--samples", options.samples, "steps of each prompt's run in which heads are measured (default 6)", "N");
  search.add("--videos", options.videos, "prompts of which whole videos are compared; 0: none (default 2)", "N");
  output.add("-o,--output", options.output, "profile to write (default profile.yaml)", "FILE");
  output.add("--heat-map", options.heat_map, "draw the sparsity of each layer and head into this .png", "FILE");
}

void tune(const Settings& settings, const tuning::TuneOptions& options, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  TunePlan plan = tuning::make_tune_plan(settings, options);
  if (!plan.heat_map.empty()) check_png("--heat-map", plan.heat_map);
  check_profile_outputs(plan);
  if (plan.run.threads) at::set_num_threads(static_cast<int>(*plan.run.threads));
  const models::Checkpoint folder = open_model(plan.run);
  const auto pipeline = models::Pipeline::open(folder, plan.request);
  check_sparse_runs(*pipeline);
  pipeline->model_hash();  // before its files may change
  const models::Plan untuned = pipeline->resolve(plan.request, /*decode=*/plan.videos > 0);
  add_model_warnings(plan.warnings, settings, plan.request, untuned, *pipeline);
  report.content["machine"] = machine_report(pipeline->device());

  const c10::InferenceMode guard;
  const c10::OptionalDeviceGuard device(pipeline->device().is_cpu() ? std::nullopt : std::optional(pipeline->device()));
  const attention::HeadSearch fresh(untuned.attention_policy.defaults, plan.bounds);
  tuning::OwnState own =
      tuning::find_state(plan.output, search_key(plan, untuned, *pipeline), fresh, limits_of(plan, untuned, *pipeline));
  for (const fs::path& other : own.others)
    plan.warnings.push_back(other.string() + " is of a search with other settings and stays; this one's is " +
                            own.path.string());
  report_warnings(plan.warnings, report);
  const size_t resumed_samples = own.state.sampled.size();
  RunProgress progress(
      !plan.run.quiet, report,
      "what was measured so far is in " + own.path.string() + "; run the same command again to go on from it");
  const tuning::Deadline deadline(start, plan.budget_seconds);
  const Found found = tuning::Session(plan, untuned, *pipeline, progress, deadline, own).run();
  progress.clear();

  const attention::Profile profile = make_profile(plan, untuned, *pipeline, found);
  const std::string missed = missed_floor(plan, found);
  const fs::path output = missed.empty() ? plan.output : tuning::missed_beside(plan.output);
  write_profile(output, profile);
  if (!plan.heat_map.empty()) write_heat_maps(plan.heat_map, {heat_map(profile)});
  std::error_code ignored;
  if (found.complete && missed.empty()) fs::remove(own.path, ignored);
  std::vector<std::string> warnings = warnings_of(plan, found, profile);
  print_warnings(warnings);
  warnings.insert(warnings.begin(), plan.warnings.begin(), plan.warnings.end());
  report.content["tune"] = found_report(profile, found, own.state, resumed_samples);
  report.content["profile"] = output.string();
  report.content["seconds"] = {{"budget", plan.budget_seconds}, {"total", deadline.elapsed()}};
  report.content["warnings"] = warnings;
  report.last_line = summary(output, profile, deadline.elapsed());
  if (missed.empty()) return;
  report.recovery.clear();  // said here
  throw run_failure(plan.output.string() + " is not written: " + missed,
                    "the best that was found is in " + output.string() +
                        (found.complete ? "; give a lower floor, or smaller --l1 and --l2"
                                        : "; run the same command again to search on"));
}

}  // namespace sparsereel::app
