// `sparsereel decode`: runs the VAE decoder on latents that `generate` saved.
#include "app/commands/decode.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>

#include "app/commands/finish_video.h"
#include "app/interrupt.h"
#include "app/latents.h"
#include "app/progress.h"

namespace sparsereel::app {
namespace {

/// The recipe saved with the latents, with what this decode changed; an object of its own where there is none.
nlohmann::json decoded_recipe(const std::string& saved, const RunOptions& run, bool tiled) {
  nlohmann::json recipe = nlohmann::json::parse(saved, nullptr, false);
  if (!recipe.is_object()) recipe = {{"version", SPARSEREEL_VERSION}};
  recipe["vae_tiling"] = tiled ? "on" : "off";
  recipe["fps"] = run.video.fps;
  return recipe;
}

}  // namespace

void decode(const std::filesystem::path& latents, const Settings& settings, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  const RunOptions run = read_run_options(settings);
  check_outputs(settings, run);
  if (run.threads) at::set_num_threads(static_cast<int>(*run.threads));
  const SavedLatents saved = load_latents(latents);
  const auto pipeline = models::Pipeline::open(run.model.string(), run.device, run.dtype);
  report.content["model"] = std::filesystem::canonical(run.model).string();

  Progress progress(!run.quiet);
  models::GenerateObserver observer;
  observer.decode = [&](int64_t done, int64_t total) { progress.step(done, total, 0); };
  observer.cancelled = interrupted;
  progress.stage("decode");
  bool tiled = false;
  const at::Tensor frames = pipeline->decode(saved.latents, run.vae_tiling, &tiled, observer);
  progress.stage("write");
  const nlohmann::json recipe = decoded_recipe(saved.recipe, run, tiled);
  const WrittenVideo written = write_outputs(run, frames, dump(recipe), recipe.value("prompt", ""));
  progress.clear();

  std::vector<std::string> warnings;
  if (!written.note.empty()) warnings.push_back(written.note);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.content["recipe"] = recipe;
  report.content["device"] = pipeline->device().str();
  report.content["seconds"] = {{"total", seconds}};
  add_output_report(report.content, run, frames, written, warnings);
  report.content["memory"] = memory_report(pipeline->device());
  print_warnings(warnings);
  report.last_line =
      output_summary(run, frames) + ", " + fixed(seconds, 1) + " s, " + memory_summary(report.content["memory"]);
}

}  // namespace sparsereel::app
