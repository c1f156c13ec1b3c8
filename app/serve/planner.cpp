// Merges settings and checks them against the model.
#include "app/serve/planner.h"

#include <c10/core/InferenceMode.h>

#include "app/jobs/batch/plan.h"
#include "app/jobs/image.h"
#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/pipeline.h"

namespace sparsereel::app::serve {
namespace {

constexpr const char* kRequest = "request";  // the place of values in errors

}  // namespace

VideoTask plan_defaults(const ServedModel& model) {
  VideoTask video;
  video.settings = model.settings;
  video.options = read_generate_options(video.settings, /*prompt_needed=*/false);
  return video;
}

std::string name_of_model(const Settings& settings) {
  return std::filesystem::canonical(model_path(settings)).stem().string();
}

VideoTask plan_video(const VideoRecord& record, const ServedModel& model, const std::filesystem::path& folder) {
  VideoTask video;
  video.set = kRequest;
  video.place = record.id;
  const VideoFiles files = files_of_video(folder, record.id);
  std::map<std::string, std::string> values = with_files(record.values, model.folders);
  values["output"] = files.video.string();
  values["contact_sheet"] = files.sheet.string();
  if (!record.image.empty()) values["image"] = (folder / record.image).string();
  if (!record.last_image.empty()) values["last_image"] = (folder / record.last_image).string();
  video.settings = model.settings;
  video.settings.add(Source::row, values, kRequest);
  if (lacks_prompt(video.settings)) throw bad_option("prompt", "is missing", "say what to show");
  add_profile(video.settings);
  video.settings.add_model_config(PresetUse::whole);
  video.options = read_generate_options(video.settings);
  video.options.run.thumbnail = files.thumbnail;
  return video;
}

std::shared_ptr<models::Pipeline> open_pipeline(const VideoTask& video) {
  return models::Pipeline::open(open_model(video.options.run), video.options.request);
}

models::Pipeline& RequestCheck::pipeline_for(const VideoTask& video) {
  const std::string key = sets::pipeline_key(video);
  if (!pipeline_ || key != key_) pipeline_ = open_pipeline(video);
  key_ = key;
  return *pipeline_;
}

void RequestCheck::settle(VideoTask& video) {
  const c10::InferenceMode guard;
  const std::lock_guard lock(mutex_);
  models::Pipeline& pipeline = pipeline_for(video);
  settle_options(video.settings, video.options, pipeline);
  PictureFiles pictures;
  settle_images(video.settings, pipeline.spec(), video.options.request, pictures);
  video.plan = pipeline.resolve_anywhere(video.options.request);
  check_image_shapes(video.plan, pipeline.spec(), pictures);
  check_encoding(video.options.run.output, video.plan.width, video.plan.height, video.options.run.video,
                 sound_format(pipeline.spec(), video.plan.no_audio));
}

models::Plan RequestCheck::default_plan(const ServedModel& model) {
  const c10::InferenceMode guard;
  VideoTask video = plan_defaults(model);
  const std::lock_guard lock(mutex_);
  models::Pipeline& pipeline = pipeline_for(video);
  settle_options(video.settings, video.options, pipeline);
  make_up_images(pipeline.spec(), video.options.request);
  return pipeline.resolve_anywhere(video.options.request);
}

models::ModelSpec RequestCheck::spec(const ServedModel& model) {
  const VideoTask video = plan_defaults(model);
  const std::lock_guard lock(mutex_);
  return pipeline_for(video).spec();
}

bool RequestCheck::has_previews(const ServedModel& model) {
  const VideoTask video = plan_defaults(model);
  const std::lock_guard lock(mutex_);
  const models::Pipeline& pipeline = pipeline_for(video);
  return models::latent_preview(pipeline.family(), pipeline.spec()).has_value();
}

}  // namespace sparsereel::app::serve
