// Resolves videos, and collects the warnings that are known before the videos are made.
#include "app/jobs/video.h"

#include <ATen/ATen.h>

#include <array>
#include <map>

#include "app/counted.h"
#include "app/jobs/latents.h"
#include "app/jobs/report.h"
#include "app/options/recipe.h"
#include "app/options/tiny_model.h"
#include "models/engine/components.h"
#include "models/engine/frames.h"
#include "models/store/configs/config_file.h"
#include "models/store/configs/data_folder.h"

namespace sparsereel::app {

namespace fs = std::filesystem;

void VideoTask::fail(const Error& error, const fs::path& latents) {
  const Error placed = settings.with_place(error);
  std::string cause = placed.what();
  if (placed.file() != set) cause.insert(0, place + ": ");
  failure = Error(placed.kind(), cause,
                  placed.remedy() + (latents.empty() ? "" : "; its latents are in " + latents.string()));
}

void resolve_video(VideoTask& video, const models::Pipeline& pipeline, LoadedFiles& loaded, int64_t ranks) {
  GenerateOptions& options = video.options;
  settle_options(video.settings, options, pipeline);
  video.told = no_effect_warnings(video.settings, options.no_effect);
  if (!options.init_latents.empty()) {
    models::Latents& latents = loaded.latents[options.init_latents];
    if (!latents.defined()) latents = load_latents(options.init_latents).latents;
    video.init_latents = latents;
  }
  video.pictures = loaded.pictures;
  settle_images(video.settings, pipeline.spec(), options.request, *video.pictures);
  video.plan = pipeline.resolve(options.request, /*decode=*/true, ranks);
  check_image_shapes(video.plan, pipeline.spec(), *video.pictures);
  pipeline.check_init_latents(video.plan, video.init_latents);
  video.sound = sound_format(pipeline.spec(), video.plan.no_audio);
  check_encoding(options.run.output, video.plan.width, video.plan.height, options.run.video, video.sound);
  video.recipe = make_recipe(options, video.plan, pipeline, *video.pictures);
  const std::string other_settings = options.profile ? models::profile_warning(*options.profile, video.plan) : "";
  for (const std::string& warning :
       {other_settings, video.settings.distilled_warning(), models::frame_count_warning(video.plan, pipeline.spec()),
        models::unusual_size_warning(video.plan, pipeline.spec()), pipeline.slow_warning(video.plan)})
    if (!warning.empty()) video.told.push_back(warning);
  if (!options.run.preview.empty() && !models::latent_preview(pipeline.family(), pipeline.spec()))
    video.told.push_back("preview has no effect: the colors of this model's latents are unknown");
  for (const std::string& warning : pipeline.weight_warnings()) video.told.push_back(warning);
  for (const std::string& warning : recipe_mismatches(video.settings, video.recipe)) video.told.push_back(warning);
  video.identity = recipe_identity(video.recipe, video.plan, options.run);
}

SoundFormat sound_format(const models::ModelSpec& spec, bool no_audio) {
  if (no_audio || !spec.sound.any()) return {};
  return {.channels = spec.sound.channels, .sampling_rate = spec.sound.sampling_rate};
}

namespace {

VideoShape shape_of(const models::Plan& plan) {
  return {.width = plan.width, .height = plan.height, .frames = plan.num_frames};
}

/// Adds warnings about shapes and prompts on which the model was not trained.
void add_warnings_of_training(const fs::path& model, const std::vector<VideoShape>& shapes,
                              const std::vector<std::string>& prompts, std::vector<std::string>& texts) {
  for (std::string& warning : std::array{unusual_shape_warning(model, shapes), unknown_words_warning(model, prompts)})
    if (!warning.empty()) texts.push_back(std::move(warning));
}

}  // namespace

std::vector<std::string> early_warnings(const VideoTask& video) {
  std::vector<std::string> texts = video.told;
  add_warnings_of_training(video.options.run.model, {shape_of(video.plan)}, {video.plan.prompt}, texts);
  return texts;
}

std::vector<std::string> early_warnings(const std::vector<VideoTask*>& videos) {
  std::vector<std::string> texts;  // each text once, in the order of the first video that has it
  std::map<std::string, std::vector<const VideoTask*>> videos_of;
  std::map<fs::path, std::vector<std::string>> prompts;
  std::map<fs::path, std::vector<VideoShape>> shapes;
  for (const VideoTask* video : videos) {
    const fs::path& model = video->options.run.model;
    prompts[model].push_back(video->plan.prompt);
    shapes[model].push_back(shape_of(video->plan));
    for (const std::string& text : video->told) {
      std::vector<const VideoTask*>& same = videos_of[text];
      if (same.empty()) texts.push_back(text);
      same.push_back(video);
    }
  }
  for (std::string& text : texts) {  // "set.csv:2: the decoder makes 8 ...", "set.csv:2 and 3 more rows: the ..."
    const std::vector<const VideoTask*>& same = videos_of.at(text);
    const auto others = static_cast<int64_t>(same.size()) - 1;
    const std::string& place = same.front()->place;
    if (!place.empty()) text.insert(0, place + (others > 0 ? " and " + counted(others, "more row") : "") + ": ");
  }
  if (std::string missing = models::missing_configs_warning(models::data_folder() / "configs"); !missing.empty())
    texts.push_back(std::move(missing));
  for (const auto& [model, of_model] : prompts) add_warnings_of_training(model, shapes.at(model), of_model, texts);
  return texts;
}

}  // namespace sparsereel::app
