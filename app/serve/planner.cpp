// Merges settings and checks them against the model.
#include "app/serve/planner.h"

#include <c10/core/InferenceMode.h>

#include <utility>

#include "app/jobs/image.h"
#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/pipeline.h"
#include "models/request/fields.h"

namespace sparsereel::app::serve {
namespace {

constexpr const char* kRequest = "request";  // errors name this as the place of a wrong value

std::string key_of(const VideoTask& video) {
  return video.options.run.model.string() + "\n" + models::pipeline_key(video.options.request);
}

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

bool OpenPipeline::serves(const VideoTask& video) {
  const RunOptions& run = video.options.run;
  if (!pipeline_ || key_of(video) != key_) return false;
  if (!served_.contains(run.with_images)) served_[run.with_images] = open_model(run).places() == places_;
  return served_.at(run.with_images);
}

models::Pipeline& OpenPipeline::open(const VideoTask& video) {
  close();
  models::Checkpoint checkpoint = open_model(video.options.run);
  places_ = checkpoint.places();
  served_ = {{video.options.run.with_images, true}};
  pipeline_ = models::Pipeline::open(std::move(checkpoint), video.options.request);
  key_ = key_of(video);
  return *pipeline_;
}

void OpenPipeline::close() {
  pipeline_.reset();  // frees its memory before the next model is opened
}

models::Pipeline& RequestCheck::pipeline_for(const VideoTask& video) {
  return pipeline_.serves(video) ? *pipeline_.get() : pipeline_.open(video);
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
  const std::lock_guard lock(mutex_);
  if (!has_previews_) {
    const models::Pipeline& pipeline = pipeline_for(plan_defaults(model));
    has_previews_ = models::latent_preview(pipeline.family(), pipeline.spec()).has_value();
  }
  return *has_previews_;
}

}  // namespace sparsereel::app::serve
