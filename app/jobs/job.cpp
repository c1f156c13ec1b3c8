// Encodes the text of each video, denoises it and writes it.
#include "app/jobs/job.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "app/clock.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/jobs/image.h"
#include "app/jobs/preset_lines.h"
#include "app/jobs/preview.h"
#include "app/jobs/report.h"
#include "app/ranks/world.h"
#include "models/engine/components.h"
#include "models/engine/denoising.h"
#include "models/engine/text_stage.h"
#include "models/engine/unless_cancelled.h"
#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "models/request/fields.h"
#include "models/request/frame_sink.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Returns the object that writes the video's previews; null if nobody asked for previews, or if the colors of the
/// video's latents are unknown.
std::unique_ptr<Previews> previews_of(const VideoTask& video, const models::Pipeline& pipeline) {
  const RunOptions& run = video.options.run;
  if (run.preview.empty()) return nullptr;
  auto preview = models::latent_preview(pipeline.family(), pipeline.spec());
  if (!preview) return nullptr;
  const double seconds = static_cast<double>(video.plan.num_frames) / run.video.fps;
  return std::make_unique<Previews>(*std::move(preview), [file = run.preview, seconds](int64_t, const auto& frames) {
    write_preview(file, frames, seconds);
  });
}

}  // namespace

nlohmann::json made_report(const VideoTask& video, const Made& made, const std::vector<std::string>& told) {
  nlohmann::json report = {{"recipe", video.recipe}, {"warnings", told}};
  for (const std::string& warning : video.warnings) report["warnings"].push_back(warning);
  const int64_t computed = models::computed_steps(made.result.attention);
  if (const std::string line = preset_line(video, computed, computed); !line.empty())
    report["preset"] = {{"name", video.settings.preset().name}, {"text", line}};
  if (const auto& image = video.plan.image_size)
    report["shape_of_image"] = {{"height", image->height}, {"width", image->width}};
  if (made.result.image.defined()) report["image"] = image_report(made.result);
  if (video.plan.cache.on()) report["cache"] = cache_report(video.plan.cache, made.result.attention);
  if (video.resumed_at_step > 0) report["resumed_at_step"] = video.resumed_at_step;
  return report;
}

template <typename Part>
std::optional<Error> Job::attempt(const Part& part) const {
  if (policy_.go_on_after_failure) return failure_of_part(part);
  part();
  return std::nullopt;
}

void Job::fail(VideoTask& video, const Error& error, const fs::path& latents) {
  collect();  // first finish and report the video that is being written
  video.fail(error, latents);
  user_.failed(video);
}

void Job::warn(VideoTask& video, const std::string& warning) {
  video.warnings.push_back(warning);
  user_.warn(video, warning);
}

size_t Job::load(std::span<VideoTask* const> videos, models::Pipeline& pipeline) {
  size_t count = 0;
  // A set must end with its report, so a signal only cancels the loading. A single command has nothing to lose yet, so
  // a signal may end its process at once.
  models::do_unless_cancelled(policy_.go_on_after_failure ? cancelled_ : nullptr,
                              [&] { count = load_all(videos, pipeline); });
  return count;
}

size_t Job::load_all(std::span<VideoTask* const> videos, models::Pipeline& pipeline) {
  const auto begun = Clock::now();
  const bool with_images = std::ranges::any_of(videos, [](const VideoTask* video) { return video->plan.has_images(); });
  pipeline.check_weights(with_images);
  videos.front()->text_cost.check = seconds_since(begun);
  models::reset_peak_memory(pipeline.device());
  settle_memory(videos, pipeline);
  if (with_images) pipeline.text_stage().release();  // how images are encoded depends on free memory
  videos = videos.first(encode_images(videos, pipeline));
  user_.observer().stage("text");
  const auto start = Clock::now();
  const bool encodes = !knows_texts(videos);
  // If the text encoder does not fit beside the transformer of the previous videos, release the transformer.
  if (encodes && pipeline.has_transformer() && !pipeline.text_stage().fits()) pipeline.release_transformer();
  // If transformers stay loaded, begin with the model's first one, even if the video resumes with the second.
  const VideoTask& first = *videos.front();
  pipeline.begin_transformer(/*resumes=*/!policy_.keep_loaded && may_have_checkpoint(first.options.run.output));
  if (encodes) pipeline.text_stage().load();
  models::synchronize(pipeline.device());
  videos.front()->text_cost.load = seconds_since(start);
  const size_t count = encode(videos, pipeline);
  // Ranks that work together cannot repeat a step that ran out of memory, so they keep no text encoder.
  if (policy_.keep_loaded && !policy_.world)
    pipeline.release_text_if_tight();
  else
    pipeline.text_stage().release();
  videos.front()->text_cost.bytes = models::peak_memory(pipeline.device());
  if (!policy_.keep_loaded) return count;
  user_.observer().stage("load");
  pipeline.load_transformer();
  pipeline.load_vae();
  return count;
}

/// Decides where the weights stay. The largest video determines how much memory is left for them.
void Job::settle_memory(std::span<VideoTask* const> videos, models::Pipeline& pipeline) {
  const auto size = [](const VideoTask* video) {
    return static_cast<double>(video->plan.width * video->plan.height) * static_cast<double>(video->plan.num_frames);
  };
  models::Run run;
  run.observer = &user_.observer();
  pipeline.settle_memory((*std::ranges::max_element(videos, {}, size))->plan, run);
}

bool Job::knows_texts(std::span<VideoTask* const> videos) const {
  return policy_.kept_texts != nullptr && std::ranges::all_of(videos, [&](const VideoTask* video) {
           return policy_.kept_texts->has(models::text_key(video->plan));
         });
}

/// Encodes the images before a text encoder is in GPU memory. Stops when the encoded images take TextLimit's bytes,
/// because they wait in memory beside the encoded texts. Returns how many videos at the front of the list have their
/// images now.
size_t Job::encode_images(std::span<VideoTask* const> videos, models::Pipeline& pipeline) {
  ImageEncodings images;
  models::Run run;
  run.observer = &user_.observer();
  if (policy_.go_on_after_failure) run.cancelled = cancelled_;
  for (size_t i = 0; i < videos.size(); ++i) {
    VideoTask& video = *videos[i];
    // If texts had to wait for another round, an earlier call of load() has already encoded these pictures.
    if (!video.plan.has_images() || video.failure || video.conditioning.has_images()) continue;
    if (i > 0 && images.nbytes() >= policy_.texts.bytes && !images.has(video.plan)) return i;
    const auto start = Clock::now();
    if (!images.has(video.plan)) user_.observer().stage("image");
    const auto failure = attempt([&] {
      const auto& encoded = images.of(video.plan, pipeline, *video.pictures, run);
      video.conditioning = encoded.conditioning;
      for (const std::string& warning : encoded.warnings) warn(video, warning);
    });
    if (failure) fail(video, *failure, {});
    video.pictures.reset();
    video.text_cost.encode = seconds_since(start);
  }
  return videos.size();
}

/// Encodes texts until TextLimit is reached and the next video has a new text, but at least the first text. Returns how
/// many of the first videos have been handled.
size_t Job::encode(std::span<VideoTask* const> videos, models::Pipeline& pipeline) {
  const double most_seconds = std::max(policy_.texts.seconds, 2 * videos.front()->text_cost.load);
  const auto start = Clock::now();
  Texts texts;
  for (size_t i = 0; i < videos.size(); ++i) {
    const bool full = texts.bytes >= policy_.texts.bytes || seconds_since(start) >= most_seconds;
    if (full && !texts.encoded.contains(models::text_key(videos[i]->plan)) && i > 0) return i;
    if (policy_.go_on_after_failure && cancelled_()) throw models::Cancelled{};
    if (videos[i]->failure) continue;  // encoding its images has failed
    const auto failure = attempt([&] { encode(*videos[i], texts, pipeline); });
    if (failure) fail(*videos[i], *failure, {});
    user_.observer().step({.step = static_cast<int64_t>(i) + 1, .steps = std::ssize(videos)});
  }
  return videos.size();
}

/// Encodes the video's text unless an earlier video has the same text. Every video with this text gets the text's
/// warnings.
void Job::encode(VideoTask& video, Texts& texts, models::Pipeline& pipeline) {
  const std::string key = models::text_key(video.plan);
  const VideoTask*& first = texts.encoded[key];
  std::vector<std::string> warnings;
  if (first == nullptr) {
    const auto start = Clock::now();
    const KeptTexts::Text* kept = policy_.kept_texts == nullptr ? nullptr : policy_.kept_texts->find(key);
    if (kept != nullptr) warnings = kept->warnings;
    models::Conditioning conditioning =
        kept != nullptr ? kept->conditioning
                        : pipeline.text_stage().encode(video.plan, &warnings, video.conditioning.seen).to(at::kCPU);
    if (kept == nullptr && policy_.kept_texts != nullptr) policy_.kept_texts->keep({key, conditioning, warnings});
    conditioning.take_video(video.conditioning);
    video.conditioning = std::move(conditioning);
    video.text_cost.encode += seconds_since(start);
    texts.bytes += video.conditioning.nbytes();
    first = &video;
  } else {
    video.conditioning = first->conditioning;
    warnings = first->warnings;
  }
  for (const std::string& warning : warnings)  // warnings about the images were already passed to the user
    if (std::ranges::find(video.warnings, warning) == video.warnings.end()) warn(video, warning);
}

void Job::run(std::span<VideoTask* const> videos, models::Pipeline& pipeline) {
  try {
    for (VideoTask* video : videos)
      if (video->conditioning.defined()) make(*video, pipeline);
  } catch (...) {
    collect();  // if writing the previous video failed, throws that error instead
    throw;
  }
}

void Job::make(VideoTask& video, models::Pipeline& pipeline) {
  const std::shared_ptr<Files> files = files_of(video);
  models::Outcome result;
  const auto failure = attempt([&] { result = render(video, pipeline, *files); });
  video.conditioning = {};
  if (failure) return fail(video, *failure, files->latents.saved());
  collect();
  written_ = std::async(policy_.write_behind ? std::launch::async : std::launch::deferred,
                        [this, &video, result = std::move(result), files] { return finish(video, result, *files); });
  if (!policy_.write_behind) collect();
}

/// Returns the files of a video. The recipe is written when decoding begins: it then holds the outcome of the
/// denoising.
std::shared_ptr<Job::Files> Job::files_of(VideoTask& video) const {
  const auto recipe = [&video](bool tiled) {
    set_tiling(video.recipe, tiled);
    return dump(video.recipe);
  };
  const RunOptions& run = video.options.run;
  return std::make_shared<Files>(KeptLatents(video.options.save_latents, run.output),
                                 FrameWriter::Text{.recipe = recipe, .caption = video.plan.prompt}, run);
}

/// Passes the frames to their writer. Also saves latents and checkpoints to files, because they would take long to
/// compute again if the run failed. Once the video exists, these files are removed unless the user asked for them.
class Job::Keeper final : public models::RunObserver {
 public:
  Keeper(Job& job, VideoTask& video, Files& files, const std::function<bool()>& cancelled)
      : job_(job), video_(video), files_(files), cancelled_(cancelled), kept_(video.resumed_at_step) {}

  void stage(const std::string& name) override {
    if (name == "denoise" && cancelled_()) throw models::Cancelled{};  // before the display says that steps have begun
  }
  void latents(const models::Outcome& denoised) override {
    add_outcome(video_.recipe, denoised);
    if (!job_.policy_.keep_latents && video_.options.save_latents.empty()) return;
    const std::string warning = files_.latents.save(denoised.latents, dump(video_.recipe));
    if (!warning.empty()) return job_.warn(video_, warning);  // now, while the user can still free disk space
    job_.user_.kept_latents(video_, files_.latents.saved());
  }
  /// Saves a checkpoint. A failed write costs time only if the run is interrupted, so it only warns.
  void checkpoint(const models::DenoisingState& state) override {
    try {
      if (state.step != kept_) save_checkpoint(video_.checkpoint, state, video_.identity);
      kept_ = state.step;
      job_.user_.kept_checkpoint(video_, state.step);
    } catch (const Error& error) {
      if (!std::exchange(warned_, true))
        job_.warn(video_, std::string("the denoising checkpoint is not saved: ") + error.what());
    }
  }
  models::FrameSink* frames() override { return &files_.frames; }

 private:
  Job& job_;
  VideoTask& video_;
  Files& files_;
  const std::function<bool()>& cancelled_;
  int64_t kept_;  // step of the checkpoint on disk
  bool warned_ = false;
};

models::Outcome Job::render(VideoTask& video, models::Pipeline& pipeline, Files& files) {
  models::Inputs inputs = {
      .init_latents = video.init_latents, .conditioning = video.conditioning, .keep_transformer = policy_.keep_loaded};
  use_checkpoint(video, inputs);
  models::Run run;
  run.cancelled = [this] { return cancelled_() || write_failed_; };
  Keeper keeper(*this, video, files, run.cancelled);
  const std::unique_ptr<Previews> previews = previews_of(video, pipeline);
  std::vector<models::RunObserver*> all = {&keeper, &user_.observer()};
  if (previews) all.push_back(previews.get());
  models::Observers observers(std::move(all));
  run.observer = &observers;
  run.checkpoints = {.every = video.options.checkpoint_every, .last = keeps_last(video), .cancelled = true};
  user_.begin(video);
  World* const world = policy_.world ? policy_.world() : nullptr;
  models::Outcome result = world == nullptr
                               ? pipeline.generate(video.plan, inputs, run)
                               : models::lead_video(*world, pipeline, video.options.request, video.plan, inputs, run);
  if (const std::exception_ptr error = previews ? previews->finish() : nullptr)
    warn(video, std::string("the preview is not complete: ") + models::as_error(error).what());
  result.seconds.check += video.text_cost.check;
  result.seconds.load_text_encoder = video.text_cost.load;
  result.seconds.text = video.text_cost.encode;
  result.memory.text = video.text_cost.bytes;
  add_outcome(video.recipe, result);
  return result;
}

bool Job::keeps_last(const VideoTask& video) const {
  return policy_.keep_last || video.options.checkpoint_every > 0;
}

/// Resumes from the checkpoint that an earlier run left.
void Job::use_checkpoint(VideoTask& video, models::Inputs& inputs) {
  OwnCheckpoint own = find_checkpoint(video.options.run.output, video.identity, video.plan.cache);
  // Warn of checkpoints that this video cannot use. In a set they are normal after rows have changed, so there is no
  // warning, and the last line lists them.
  if (!policy_.go_on_after_failure)
    for (const std::string& other : own.passed_over)
      warn(video, other + "; this run's checkpoint is " + own.path.string());
  video.checkpoint = own.path;
  inputs.resume = std::move(own.state);
  if (inputs.resume) video.resumed_at_step = inputs.resume->step;
}

Job::Written Job::finish(VideoTask& video, const models::Outcome& result, Files& files) {
  const c10::InferenceMode guard;
  Written written{.video = &video, .warnings = {}};
  std::exception_ptr failure;
  try {
    written.warnings = finish_files(video, result, files);
  } catch (...) {
    failure = std::current_exception();
  }
  user_.ended(video, failure, written.warnings);
  if (failure)
    if (const auto error = write_failure(failure)) video.fail(*error, files.latents.saved());
  return written;
}

/// Returns the error of a video that could not be written. Rethrows errors that end the job.
std::optional<Error> Job::write_failure(const std::exception_ptr& failure) {
  if (policy_.go_on_after_full_disk) return models::as_error(failure);
  try {
    return attempt([&] { std::rethrow_exception(failure); });
  } catch (...) {
    write_failed_ = true;  // stops the current video; collect() then throws the error
    throw;
  }
}

/// Runs in the thread that writes. Returns the warnings that the job's own thread must pass to the user.
std::vector<std::string> Job::finish_files(VideoTask& video, const models::Outcome& result, Files& files) {
  const auto start = Clock::now();
  const RunOptions& run = video.options.run;
  if (!policy_.write_behind) user_.observer().stage("write");
  const WrittenVideo file = files.frames.finish();
  std::vector<std::string> warnings = result.warnings;
  if (!file.note.empty()) warnings.push_back(file.note);
  for (std::string& warning : defect_warnings(result.facts, file.sound, files.latents))
    warnings.push_back(std::move(warning));
  video.warnings.insert(video.warnings.end(), warnings.begin(), warnings.end());
  if (!policy_.write_behind)
    for (const std::string& warning : std::exchange(warnings, {})) user_.warn(video, warning);
  user_.written(video, {result, file, files.latents, start});
  // If the user asked for latents that could not be saved, written() has thrown, and this line is not reached. The
  // checkpoint then stays, so that another run can resume from it.
  remove_checkpoints({{run.output, video.identity}});
  return warnings;
}

bool Job::can_collect(std::chrono::milliseconds most) const {
  return !written_.valid() || written_.wait_for(most) != std::future_status::timeout;
}

void Job::collect() {
  if (!written_.valid()) return;
  const Written written = written_.get();
  if (written.video->failure) return user_.failed(*written.video);
  for (const std::string& warning : written.warnings) user_.warn(*written.video, warning);
  user_.done(*written.video);
}

}  // namespace sparsereel::app
