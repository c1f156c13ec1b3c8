// `sparsereel decode`: runs the VAE decoder on latents that `generate` saved.
#include "app/commands/decode.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>

#include "app/clock.h"
#include "app/commands/finish_video.h"
#include "app/interrupt.h"
#include "app/latents.h"
#include "app/outputs.h"
#include "app/progress.h"
#include "models/device.h"
#include "models/frames.h"

namespace sparsereel::app {
namespace {

/// The recipe saved with the latents; an object of its own where there is none.
nlohmann::json saved_recipe(const std::string& text) {
  nlohmann::json recipe = nlohmann::json::parse(text, nullptr, false);
  if (!recipe.is_object()) recipe = {{"version", SPARSEREEL_VERSION}};
  return recipe;
}

/// The rate that the user gives, else the one that the latents were made for.
double frame_rate_of(const Settings& settings, const nlohmann::json& recipe, double otherwise) {
  const Setting* given = settings.find("fps");
  if (given != nullptr && given->source != Source::matched_config) return otherwise;
  const auto saved = recipe.find("fps");
  return saved != recipe.end() && saved->is_number() ? saved->get<double>() : otherwise;
}

}  // namespace

void decode(const std::filesystem::path& latents, const Settings& settings, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  RunOptions run = read_run_options(settings);
  const SavedLatents saved = load_latents(latents);
  nlohmann::json recipe = saved_recipe(saved.recipe);
  run.video.fps = frame_rate_of(settings, recipe, run.video.fps);
  check_outputs(settings, run, latents);
  if (run.threads) at::set_num_threads(static_cast<int>(*run.threads));
  const auto pipeline = open_pipeline(run);
  report.content["model"] = std::filesystem::canonical(run.model).string();

  Progress progress(!run.quiet);
  models::GenerateObserver observer;
  observer.decode = [&](int64_t done, int64_t total) { progress.step(done, total, 0); };
  observer.cancelled = interrupted;
  progress.stage("decode");
  models::reset_peak_memory(pipeline->device());
  const models::Decoded decoded = pipeline->decode(saved.latents, run.vae_tiling, observer);
  const at::Tensor& frames = decoded.frames;
  progress.stage("write");
  recipe["vae_tiling"] = decoded.tiled ? "on" : "off";
  set_encoding(recipe, run);
  const auto prompt = recipe.find("prompt");
  const std::string caption = prompt != recipe.end() && prompt->is_string() ? prompt->get<std::string>() : "";
  const WrittenVideo written = write_outputs(run, frames, dump(recipe), caption);
  progress.clear();

  std::vector<std::string> warnings;
  if (!decoded.warning.empty()) warnings.push_back(decoded.warning);
  if (const std::string wrong = models::defect(frames); !wrong.empty())
    warnings.push_back("the video " + wrong);
  if (!written.note.empty()) warnings.push_back(written.note);
  const double seconds = seconds_since(start);
  report.content["recipe"] = recipe;
  report.content["device"] = pipeline->device().str();
  report.content["seconds"] = {{"total", seconds}};
  add_output_report(report.content, run, frames, written, warnings);
  report.content["memory"] = memory_report(pipeline->device(), {.decode = models::peak_memory(pipeline->device())});
  print_warnings(warnings);
  report.last_line =
      output_summary(run, frames) + ", " + fixed(seconds, 1) + " s, " + memory_summary(report.content["memory"]);
}

}  // namespace sparsereel::app
