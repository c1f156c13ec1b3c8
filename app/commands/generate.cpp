// `sparsereel generate`: checks everything first, then text, denoising, decoding, and the video file.
#include "app/commands/generate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <iostream>
#include <set>
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

models::GenerateObserver observe_video(Progress& progress, int64_t steps,
                                       const std::function<void(const models::GenerateResult&)>& latents) {
  models::GenerateObserver observer = observe(progress, steps);
  observer.stage = [&progress](const std::string& stage) {
    if (stage == "denoise" && interrupted()) throw models::Cancelled{};  // before it is shown that steps have begun
    progress.stage(stage);
  };
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
  if (const std::string wrong = defect_warning(result.frames, kept); !wrong.empty()) warnings.push_back(wrong);
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

/// A video as the command line describes it, checked as far as that takes no model.
struct Planned {
  const Settings& settings;
  GenerateOptions options;
};

std::vector<Planned> plan_videos(const std::vector<Settings>& settings) {
  std::vector<Planned> videos;
  for (const Settings& each : settings) {
    videos.push_back({each, read_generate_options(each)});
    check_outputs(each, videos.back().options.run);
  }
  const fs::path& latents = videos.front().options.init_latents;
  if (latents.empty()) return videos;
  const at::Tensor initial = load_latents(latents).latents;
  for (Planned& video : videos) video.options.request.init_latents = initial;
  return videos;
}

/// What all videos of a prompt share.
struct Common {
  std::shared_ptr<models::Pipeline> pipeline;
  std::string model;  // its folder, which may be moved from now on
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();  // of the next video; of the first one that of the command
  at::Tensor text;                       // of several videos; a single one encodes its own
  double text_seconds = 0;               // that no video has in its report yet
  std::vector<std::string> text_warnings;
  std::set<std::string> told;  // warnings
};

void open_common(Common& common, std::vector<Planned>& videos) {
  const GenerateOptions& first = videos.front().options;
  if (first.run.threads) at::set_num_threads(static_cast<int>(*first.run.threads));
  common.pipeline = open_pipeline(first.run);
  common.model = fs::canonical(first.run.model).string();
  for (Planned& video : videos) {
    check_profile(video.settings, video.options.profile, *common.pipeline);
    video.options.request.attention_mode =
        choose_attention_mode(video.settings, video.options, common.pipeline->device(), common.pipeline->dtype());
  }
}

/// Only the text: a denoiser that stayed for the next video might make the decoder work in tiles, and a video of
/// several is the same as one that is made alone.
void encode_once(Common& common, const models::GenerateRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  models::Pipeline& pipeline = *common.pipeline;
  const models::GenerateSettings resolved = pipeline.resolve(request);
  pipeline.check_weights();
  if (!pipeline.streams_text_encoder()) pipeline.load_text_encoder();
  common.text = pipeline.encode_text(request, resolved, &common.text_warnings);
  pipeline.release_text_encoder();
  common.text_seconds = seconds_since(start);
}

void make_video(const Planned& video, Common& common, RunReport& report) {
  const auto start = common.start;
  const Settings& settings = video.settings;
  GenerateOptions options = video.options;
  options.request.text = common.text;
  const std::shared_ptr<models::Pipeline>& pipeline = common.pipeline;
  report.content["model"] = common.model;
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
    if (common.told.insert(warning).second) print_warnings({warning});  // now, while there is time to make room
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
  models::GenerateObserver observer = observe_video(progress, resolved.num_inference_steps, save);
  use_checkpoints(options, report, observer, warn);
  for (const std::string& mismatch : recipe_mismatches(settings, report.content["recipe"])) warn(mismatch);
  for (const std::string& cut : common.text_warnings) warn(cut);
  for (const std::string& early :
       {models::frame_count_warning(resolved), unknown_words_warning(options.run.model, {options.request.prompt})})
    if (!early.empty()) warn(early);
  models::GenerateResult result = pipeline->generate(options.request, resolved, observer);
  result.seconds.text += std::exchange(common.text_seconds, 0);

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

void generate(const std::vector<Settings>& settings, RunReport& report) {
  Common common;
  std::vector<Planned> videos = plan_videos(settings);
  open_common(common, videos);
  if (videos.size() == 1) return make_video(videos.front(), common, report);
  encode_once(common, videos.front().options.request);
  const nlohmann::json head = report.content;
  nlohmann::json made = nlohmann::json::array();
  std::string lines;
  for (const Planned& video : videos) {
    report.content["videos"] = made;  // those that are there, whatever becomes of this one
    make_video(video, common, report);
    common.start = std::chrono::steady_clock::now();
    report.content.erase("videos");
    for (const auto& [key, value] : head.items()) report.content.erase(key);
    made.push_back(std::exchange(report.content, head));
    lines += (lines.empty() ? "" : "\n") + report.last_line + ", seed " + made.back().at("recipe").at("seed").dump();
  }
  report.content["videos"] = made;
  report.last_line = lines;
}

}  // namespace sparsereel::app
