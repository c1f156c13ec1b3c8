// `sparsereel generate`: checks everything first, then text, denoising, decoding, and the video file.
#include "app/commands/generate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <iostream>
#include <utility>

#include "app/clock.h"
#include "app/commands/finish_video.h"
#include "app/denoising_checkpoint.h"
#include "app/interrupt.h"
#include "app/latents.h"
#include "app/outputs.h"
#include "app/progress.h"
#include "app/recipe.h"
#include "app/tiny_model.h"
#include "attention/attention.h"
#include "models/device.h"
#include "models/frames.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

/// Of a run's ends, beside models::StageSeconds.
struct EndSeconds {
  double open = 0, write = 0, total = 0;
};

nlohmann::json seconds_report(const models::StageSeconds& seconds, const EndSeconds& ends) {
  return {{"open", ends.open},
          {"text", seconds.text},
          {"load", seconds.load()},
          {"loads",
           {{"text_encoder", seconds.load_text_encoder},
            {"transformer", seconds.load_transformer},
            {"vae", seconds.load_vae}}},
          {"denoise", seconds.denoise},
          {"decode", seconds.decode},
          {"write", ends.write},
          {"steps", seconds.steps},
          {"total", ends.total}};
}

models::GenerateObserver observe(Progress& progress,
                                 const std::function<void(const models::GenerateResult&)>& latents) {
  models::GenerateObserver observer;
  observer.stage = [&progress](const std::string& stage) {
    if (stage == "denoise" && interrupted()) throw models::Cancelled{};  // before it is shown that steps have begun
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
  const attention::Statistics& statistics = run.statistics;
  std::string text = mode + " attention, sparsity " + fixed(statistics.sparsity() * 100, 1) + "%";
  if (statistics.mean_blocks > 0)
    text += " (the means of dropped blocks cost " + fixed(statistics.mean_share() * 100, 1) + "%)";
  if (run.mode != attention::Mode::check) return text;
  text += ", relative L1 " + fixed(statistics.mean_relative_l1(), 4);
  if (statistics.predicted_tiles > 0) text += ", predicted error " + fixed(statistics.predicted_error(), 4);
  return text;
}

/// What is to be said of a video that is written. Its latents are let go unless something is wrong with it.
std::vector<std::string> closing_warnings(const models::GenerateResult& result, const WrittenVideo& written,
                                          const std::string& of_profile, KeptLatents& kept) {
  std::vector<std::string> warnings = result.warnings;
  for (const std::string& warning : {written.note, of_profile})
    if (!warning.empty()) warnings.push_back(warning);
  const std::string wrong = models::defect(result.frames);
  if (wrong.empty()) {
    kept.let_go();
  } else {
    warnings.push_back("the video " + wrong +
                       (kept.saved().empty() ? "" : "; its latents are in " + kept.saved().string()));
  }
  return warnings;
}

/// What the run took, in the report and its last line.
void add_costs(RunReport& report, const GenerateOptions& options, const models::GenerateResult& result,
               at::Device device, const EndSeconds& ends) {
  report.content["device"] = device.str();
  report.content["threads"] = at::get_num_threads();
  report.content["seconds"] = seconds_report(result.seconds, ends);
  report.content["attention"] = attention_report(result.attention, device);
  report.content["memory"] = memory_report(device, result.memory);
  const models::StageSeconds& seconds = result.seconds;
  report.last_line = output_summary(options.run, result.frames) + ", " + fixed(ends.total, 1) + " s (text " +
                     fixed(seconds.text, 1) + ", load " + fixed(seconds.load(), 1) + ", denoise " +
                     fixed(seconds.denoise, 1) + ", decode " + fixed(seconds.decode, 1) + ", write " +
                     fixed(ends.write, 1) + "), " + attention_summary(result.attention) + ", " +
                     memory_summary(report.content["memory"]) +
                     (options.random_seed ? ", seed " + std::to_string(options.request.seed) : "");
}

void make_video(const Settings& settings, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  GenerateOptions options = read_generate_options(settings);
  check_outputs(settings, options.run);
  if (options.run.threads) at::set_num_threads(static_cast<int>(*options.run.threads));
  if (!options.init_latents.empty()) options.request.init_latents = load_latents(options.init_latents).latents;

  const auto pipeline = open_pipeline(options.run);
  check_profile(settings, options.profile, *pipeline);
  options.request.attention_mode = choose_attention_mode(settings, options, pipeline->device(), pipeline->dtype());
  report.content["model"] = fs::canonical(options.run.model).string();
  const models::GenerateSettings resolved = pipeline->resolve(options.request);
  report.content["recipe"] = make_recipe(options, resolved, *pipeline);
  const std::string other_settings = profile_warning(options, resolved);
  EndSeconds ends{.open = seconds_since(start)};

  // The latents are what costs time: they stay on the disk until the video is there.
  KeptLatents kept(options.save_latents, options.run.output);
  std::vector<std::string> warnings;
  Progress progress(!options.run.quiet);
  const auto warn = [&](const std::string& warning) {
    progress.clear();
    print_warnings({warning});  // now, while there is still time to make room
    warnings.push_back(warning);
  };
  nlohmann::json recipe = report.content["recipe"];
  const auto save = [&](const models::GenerateResult& denoised) {
    add_outcome(recipe, denoised);
    const std::string warning = kept.save(denoised.latents, dump(recipe));
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
  for (const std::string& early :
       {models::frame_count_warning(resolved), unknown_words_warning(options.run.model, {options.request.prompt})})
    if (!early.empty()) warn(early);
  const models::GenerateResult result = pipeline->generate(options.request, observer);

  progress.stage("write");
  const auto write_start = std::chrono::steady_clock::now();
  add_outcome(recipe, result);
  const WrittenVideo written = write_outputs(options.run, result.frames, dump(recipe), options.request.prompt);
  progress.clear();
  const std::vector<std::string> last_warnings = closing_warnings(result, written, other_settings, kept);
  print_warnings(last_warnings);
  warnings.insert(warnings.end(), last_warnings.begin(), last_warnings.end());
  ends.write = seconds_since(write_start);
  ends.total = seconds_since(start);

  report.recovery.clear();
  report.content["recipe"] = recipe;
  add_output_report(report.content, options.run, result.frames, written, warnings);
  add_costs(report, options, result, pipeline->device(), ends);
  kept.check();
  std::error_code ignored;  // while the latents that were asked for are missing, the checkpoint is their nearest
  if (options.checkpoint_every > 0) fs::remove(checkpoint_beside(options.run.output), ignored);
}

}  // namespace

void generate(const std::vector<Settings>& videos, RunReport& report) {
  if (videos.size() == 1) return make_video(videos.front(), report);
  const nlohmann::json common = report.content;
  nlohmann::json made = nlohmann::json::array();
  std::string lines;
  for (const Settings& video : videos) {
    report.content["videos"] = made;  // those that are there, whatever becomes of this one
    make_video(video, report);
    report.content.erase("videos");
    for (const auto& [key, value] : common.items()) report.content.erase(key);
    made.push_back(std::exchange(report.content, common));
    lines += (lines.empty() ? "" : "\n") + report.last_line + ", seed " + made.back().at("recipe").at("seed").dump();
  }
  report.content["videos"] = made;
  report.last_line = lines;
}

}  // namespace sparsereel::app
