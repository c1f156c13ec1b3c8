// `sparsereel generate`: checks everything first, then text, denoising, decoding, and the video file.
#include "app/commands/generate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <iostream>

#include "app/clock.h"
#include "app/commands/finish_video.h"
#include "app/denoising_checkpoint.h"
#include "app/interrupt.h"
#include "app/latents.h"
#include "app/outputs.h"
#include "app/progress.h"
#include "app/recipe.h"
#include "attention/attention.h"
#include "models/device.h"
#include "models/frames.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

nlohmann::json seconds_report(const models::StageSeconds& seconds, double open, double write) {
  return {{"open", open},
          {"text", seconds.text},
          {"load", seconds.load()},
          {"loads",
           {{"text_encoder", seconds.load_text_encoder},
            {"transformer", seconds.load_transformer},
            {"vae", seconds.load_vae}}},
          {"denoise", seconds.denoise},
          {"decode", seconds.decode},
          {"write", write},
          {"steps", seconds.steps}};
}

models::GenerateObserver observe(
    Progress& progress, const std::function<void(const at::Tensor&, const models::GenerateSettings&)>& latents) {
  models::GenerateObserver observer;
  observer.stage = [&progress](const std::string& stage) {
    if (interrupted()) throw models::Cancelled{};
    progress.stage(stage);
  };
  observer.step = [&progress](int64_t step, int64_t steps, double seconds) { progress.step(step, steps, seconds); };
  observer.decode = [&progress](int64_t done, int64_t total) { progress.step(done, total, 0); };
  observer.latents = latents;
  observer.cancelled = interrupted;
  return observer;
}

/// With --checkpoint-every: goes on from the checkpoint that an earlier run left, and writes new ones.
void use_checkpoints(GenerateOptions& options, RunReport& report, models::GenerateObserver& observer,
                     const std::function<void(const std::string&)>& warn) {
  if (options.checkpoint_every == 0) return;
  const fs::path path = checkpoint_beside(options.run.output);
  const std::string identity = recipe_identity(report.content["recipe"], options);
  std::string other;
  options.request.resume = load_checkpoint(path, identity, other);
  if (!other.empty()) warn(other);
  if (options.request.resume) report.content["resumed_at_step"] = options.request.resume->step;
  const auto saved = [&report, path](const models::DenoisingState& state) {
    report.recovery =
        "run the same command again: it goes on from step " + std::to_string(state.step) + " in " + path.string();
  };
  keep_checkpoints(observer, path, identity, options.checkpoint_every, saved, warn);
}

std::string attention_summary(const models::AttentionRun& run) {
  const std::string mode(attention::name(run.mode));
  if (run.mode == attention::Mode::full) return mode + " attention";
  return mode + " attention, sparsity " + fixed(run.statistics.sparsity() * 100, 1) + "%";
}

}  // namespace

void generate(const Settings& settings, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  GenerateOptions options = read_generate_options(settings);
  check_outputs(settings, options.run);
  if (options.run.threads) at::set_num_threads(static_cast<int>(*options.run.threads));
  if (!options.init_latents.empty()) options.request.init_latents = load_latents(options.init_latents).latents;

  const auto pipeline = open_pipeline(options.run);
  check_profile(settings, options.profile, *pipeline);
  options.request.attention_mode = choose_attention_mode(settings, options, pipeline->device(), pipeline->dtype());
  report.content["model"] = fs::canonical(options.run.model).string();
  report.content["recipe"] = make_recipe(options, pipeline->resolve(options.request), *pipeline, {});
  const std::string other_settings = profile_warning(options, pipeline->resolve(options.request));
  const double open_seconds = seconds_since(start);

  // The latents are what costs time: they stay on the disk until the video is there.
  KeptLatents kept(options.save_latents, options.run.output);
  std::vector<std::string> warnings;
  Progress progress(!options.run.quiet);
  const auto warn = [&](const std::string& warning) {
    progress.clear();
    print_warnings({warning});  // now, while there is still time to make room
    warnings.push_back(warning);
  };
  const auto save = [&](const at::Tensor& latents, const models::GenerateSettings& resolved) {
    const std::string warning = kept.save(latents, dump(make_recipe(options, resolved, *pipeline, {})));
    if (warning.empty()) {
      report.recovery =
          "the latents are kept; turn them into the video with: " + decode_command(settings, options.run, kept.saved());
    } else {
      warn(warning);
    }
  };
  models::GenerateObserver observer = observe(progress, save);
  use_checkpoints(options, report, observer, warn);
  for (const std::string& mismatch : recipe_mismatches(settings, report.content["recipe"])) warn(mismatch);
  models::GenerateResult result = pipeline->generate(options.request, observer);

  progress.stage("write");
  const auto write_start = std::chrono::steady_clock::now();
  const nlohmann::json recipe = make_recipe(options, result.settings, *pipeline, result.attention.statistics);
  const WrittenVideo written = write_outputs(options.run, result.frames, dump(recipe), options.request.prompt);
  progress.clear();
  if (!written.note.empty()) result.warnings.push_back(written.note);
  if (!other_settings.empty()) result.warnings.push_back(other_settings);
  if (const std::string other = models::frame_count_warning(result.frames, result.settings); !other.empty())
    result.warnings.push_back(other);
  if (const std::string wrong = models::defect(result.frames, result.latents.scalar_type()); wrong.empty()) {
    kept.let_go();
  } else {
    const std::string where = kept.saved().empty() ? "" : "; its latents are in " + kept.saved().string();
    result.warnings.push_back("the video " + wrong + where);
  }
  std::error_code ignored;
  if (options.checkpoint_every > 0) fs::remove(checkpoint_beside(options.run.output), ignored);
  const double write_seconds = seconds_since(write_start), all_seconds = seconds_since(start);

  report.recovery.clear();
  report.content["recipe"] = recipe;
  report.content["device"] = pipeline->device().str();
  report.content["threads"] = at::get_num_threads();
  report.content["seconds"] = seconds_report(result.seconds, open_seconds, write_seconds);
  report.content["seconds"]["total"] = all_seconds;
  report.content["attention"] = attention_report(result.attention, pipeline->device());
  print_warnings(result.warnings);
  warnings.insert(warnings.end(), result.warnings.begin(), result.warnings.end());
  add_output_report(report.content, options.run, result.frames, written, warnings);
  report.content["memory"] = memory_report(pipeline->device(), result.memory);
  const models::StageSeconds& seconds = result.seconds;
  kept.check();
  report.last_line = output_summary(options.run, result.frames) + ", " + fixed(all_seconds, 1) + " s (text " +
                     fixed(seconds.text, 1) + ", load " + fixed(seconds.load(), 1) + ", denoise " +
                     fixed(seconds.denoise, 1) + ", decode " + fixed(seconds.decode, 1) + ", write " +
                     fixed(write_seconds, 1) + "), " + attention_summary(result.attention) + ", " +
                     memory_summary(report.content["memory"]);
}

}  // namespace sparsereel::app
