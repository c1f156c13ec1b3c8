// Runs a job for each video.
#include "app/serve/local_maker.h"

#include <utility>

#include "app/clock.h"
#include "app/jobs/outputs.h"
#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/pipeline.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::serve {
namespace {

/// Returns the stage's name for clients.
std::string stage_for_clients(const std::string& name) {
  if (name == "denoise") return "steps";
  return name == "load" ? "text" : name;
}

}  // namespace

void LocalMaker::open(MakingObserver& observer) {
  heard_ = &observer;
  VideoTask first = plan_defaults(model_);
  use_device(first);
  pipeline_for(first).check_weights();
}

void LocalMaker::use_device(VideoTask& video) const {
  if (!device_.empty()) video.options.request.device = device_;
}

models::Pipeline& LocalMaker::pipeline_for(const VideoTask& video) {
  if (pipeline_.serves(video)) return *pipeline_.get();
  job_.collect();
  texts_.clear();
  models::Pipeline& pipeline = pipeline_.open(video);
  if (team_ == nullptr) return pipeline;
  try {
    if (team_->size() > 1) pipeline.check_weights();  // bad weights must fail before the other ranks load them
    team_model_ = video.options;
    team_->use(team_model_);
  } catch (...) {
    pipeline_.close();  // the other ranks have not opened this model
    throw;
  }
  return pipeline;
}

/// Resolves the video. If that fails while a transformer is loaded, releases the transformer and tries again: the
/// transformer may have taken the memory that the video needs.
void LocalMaker::resolve(VideoTask& video, models::Pipeline& pipeline) {
  LoadedFiles files;
  VideoTask copy = video;
  try {
    return resolve_video(video, pipeline, files, ranks());
  } catch (const Error&) {
    if (!pipeline.has_transformer()) throw;
  }
  pipeline.release_transformer();
  video = std::move(copy);
  resolve_video(video, pipeline, files, ranks());
}

/// The server makes videos as `batch` does: it writes a video while it makes the next one, and a video that fails does
/// not stop the others. It does not keep latents in a file: after a failure the server would remove them, and a killed
/// server resumes from the checkpoint.
JobPolicy LocalMaker::policy() {
  JobPolicy policy = {.keep_loaded = true,
                      .write_behind = true,
                      .go_on_after_failure = true,
                      .go_on_after_full_disk = true,
                      .keep_last = true,
                      .keep_latents = false,
                      .kept_texts = &texts_};
  if (team_ != nullptr) policy.world = [this] { return team_->ready(); };
  return policy;
}

void LocalMaker::make(const VideoRecord& record, const std::function<bool()>& cancelled) {
  cancelled_ = cancelled;
  const MadeVideo made = outcome_of([&] {
    make_video(record);
    return MadeVideo();
  });
  previews_ = nullptr;
  if (made.code.empty()) return;  // the thread that writes the video reports its end
  if (!made.is_cancelled()) check_machine();
  heard_->ended(record.id, made);
}

void LocalMaker::make_video(const VideoRecord& record) {
  auto video = std::make_unique<VideoTask>(plan_video(record, model_, folder_));
  use_device(*video);
  models::Pipeline& pipeline = pipeline_for(*video);
  resolve(*video, pipeline);
  for (const std::string& warning : early_warnings(*video)) heard_->warn(record.id, warning);
  pipeline.check_ranks(video->plan, ranks());
  const std::unique_ptr<Previews> previews = previews_of(pipeline);  // declared after `video`, which must outlive it
  previews_ = previews.get();
  const std::vector<VideoTask*> videos = {video.get()};
  failed_ = nullptr;
  job_.load(videos, pipeline);
  if (failed_ != video.get()) job_.run(videos, pipeline);
  if (failed_ == video.get()) throw *video->failure;
  writing_ = std::move(video);  // frees the video before, which the job has finished writing
}

bool LocalMaker::collect(const std::function<bool()>& enough) {
  constexpr std::chrono::milliseconds kLook{5};
  while (!job_.can_collect(kLook))
    if (enough()) return false;
  job_.collect();
  return true;
}

void LocalMaker::check_machine() {
  if (team_ != nullptr) team_->after_failure();
  if (pipeline_.get() != nullptr) models::synchronize(pipeline_.get()->device());
}

std::unique_ptr<Previews> LocalMaker::previews_of(const models::Pipeline& pipeline) {
  auto preview = models::latent_preview(pipeline.family(), pipeline.spec());
  if (!preview) return nullptr;
  return std::make_unique<Previews>(*std::move(preview), [this](int64_t step, const at::Tensor& frames) {
    const std::vector<uint8_t> png = preview_png(frames);
    heard_->preview(step, {png.begin(), png.end()});
  });
}

void LocalMaker::warn(const VideoTask& video, const std::string& warning) {
  heard_->warn(video.place, warning);
}

/// Called in the thread of make(), also if writing a video failed. In that case the thread that writes has already
/// reported the video's end.
void LocalMaker::failed(const VideoTask& video) {
  failed_ = &video;
}

void LocalMaker::written(const VideoTask& video, const Made& made) {
  made.latents.check();
  written_ = {.recipe = video.recipe,
              .decode_seconds = made.result.seconds.decode + made.result.seconds.decode_sound,
              .write_seconds = seconds_since(made.write_start)};
}

void LocalMaker::ended(const VideoTask& video, const std::exception_ptr& failure, std::vector<std::string>& warnings) {
  // Clients read the record when they hear that the video is completed, so it must have its warnings before.
  for (const std::string& warning : std::exchange(warnings, {})) heard_->warn(video.place, warning);
  heard_->ended(video.place, outcome_of([&] {
                  if (failure) std::rethrow_exception(failure);
                  return std::move(written_);
                }));
}

void LocalMaker::stage(const std::string& name) {
  heard_->stage(stage_for_clients(name));
}

void LocalMaker::step(const models::StepDone& step) {
  if (!step.predicted_latents) return;  // the job also reports each encoded text as a step
  if (previews_ != nullptr) previews_->step(step);
  heard_->step(step.step, step.steps, step.seconds);
}

void LocalMaker::decoded(const models::PieceProgress& pieces) {
  heard_->decoded(pieces.total > 0 ? static_cast<double>(pieces.done) / static_cast<double>(pieces.total) : 0);
}

}  // namespace sparsereel::app::serve
