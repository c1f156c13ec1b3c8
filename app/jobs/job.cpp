// Text, denoising and writing of each video.
#include "app/jobs/job.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "app/clock.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/jobs/image.h"
#include "app/jobs/preset_lines.h"
#include "app/jobs/report.h"
#include "app/ranks/shared_video.h"
#include "models/engine/denoising.h"
#include "models/engine/text_stage.h"
#include "models/engine/unless_cancelled.h"
#include "models/request/fields.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Events that nobody watches are not told.
template <typename Event, typename... Arguments>
void tell(const Event& event, Arguments&&... arguments) {
  if (event) event(std::forward<Arguments>(arguments)...);
}

}  // namespace

nlohmann::json made_report(const Video& video, const Made& made, const std::vector<std::string>& told) {
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

void Job::fail(Video& video, const Error& error, const fs::path& latents) {
  collect();  // the user hears of one video at a time
  video.fail(error, latents);
  user_.failed(video);
}

void Job::warn(Video& video, const std::string& warning) {
  video.warnings.push_back(warning);
  user_.warn(video, warning);
}

size_t Job::load(std::span<Video* const> videos, models::Pipeline& pipeline) {
  size_t count = 0;
  // A set has a report to end with; of a command's own videos nothing is lost: a signal ends the process at once.
  models::do_unless_cancelled(policy_.go_on_after_failure ? cancelled_ : nullptr,
                              [&] { count = load_all(videos, pipeline); });
  return count;
}

size_t Job::load_all(std::span<Video* const> videos, models::Pipeline& pipeline) {
  const auto begun = Clock::now();
  pipeline.check_weights(std::ranges::any_of(videos, [](const Video* video) { return !video->plan.image.empty(); }));
  videos.front()->text_cost.check = seconds_since(begun);
  const models::Run run = user_.watch(*videos.front());
  models::reset_peak_memory(pipeline.device());
  videos = videos.first(encode_images(videos, run, pipeline));
  tell(run.stage, "text");
  const auto start = Clock::now();
  // The denoiser of the videos before makes room where both do not fit.
  if (pipeline.has_transformer() && !pipeline.text_stage().fits()) pipeline.release_transformer();
  // What stays loaded begins with the first transformer in any case.
  const Video& first = *videos.front();
  pipeline.begin_transformer(/*resumes=*/!policy_.keep_loaded && may_have_checkpoint(first.options.run.output));
  pipeline.text_stage().load();
  models::synchronize(pipeline.device());
  videos.front()->text_cost.load = seconds_since(start);
  const size_t count = encode(videos, run, pipeline);
  pipeline.text_stage().release();
  videos.front()->text_cost.bytes = models::peak_memory(pipeline.device());
  if (!policy_.keep_loaded) return count;
  tell(run.stage, "load");
  pipeline.load_transformer();
  pipeline.load_vae();
  return count;
}

/// Before there is a text encoder in the GPU's memory. Returns how many of the videos TextLimit allows: at least one.
size_t Job::encode_images(std::span<Video* const> videos, models::Run run, models::Pipeline& pipeline) {
  ImageEncodings images;
  if (policy_.go_on_after_failure) run.cancelled = cancelled_;
  for (size_t i = 0; i < videos.size(); ++i) {
    Video& video = *videos[i];
    // Where texts had to wait, what was made of the pictures is there from the load before.
    if (video.plan.image.empty() || video.failure || video.conditioning.latents.defined()) continue;
    if (i > 0 && images.nbytes() >= policy_.texts.bytes && !images.has(video.plan)) return i;
    const auto start = Clock::now();
    if (!images.has(video.plan)) tell(run.stage, "image");
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

/// Returns how many of the videos TextLimit allows: at least one, and all that share texts with the last.
size_t Job::encode(std::span<Video* const> videos, const models::Run& run, models::Pipeline& pipeline) {
  const double most_seconds = std::max(policy_.texts.seconds, 2 * videos.front()->text_cost.load);
  const auto start = Clock::now();
  Texts texts;
  for (size_t i = 0; i < videos.size(); ++i) {
    const bool full = texts.bytes >= policy_.texts.bytes || seconds_since(start) >= most_seconds;
    if (full && !texts.encoded.contains(models::text_key(videos[i]->plan)) && i > 0) return i;
    if (policy_.go_on_after_failure && cancelled_()) throw models::Cancelled{};
    if (videos[i]->failure) continue;  // of its images
    const auto failure = attempt([&] { encode(*videos[i], texts, pipeline); });
    if (failure) fail(*videos[i], *failure, {});
    tell(run.step, static_cast<int64_t>(i) + 1, static_cast<int64_t>(videos.size()), 0);
  }
  return videos.size();
}

/// The same text once; each of its videos has the warnings.
void Job::encode(Video& video, Texts& texts, models::Pipeline& pipeline) {
  const Video*& first = texts.encoded[models::text_key(video.plan)];
  std::vector<std::string> warnings;
  if (first == nullptr) {
    const auto start = Clock::now();
    models::Conditioning conditioning = pipeline.text_stage().encode(video.plan, &warnings).to(at::kCPU);
    conditioning.take_video(video.conditioning);
    video.conditioning = std::move(conditioning);
    video.text_cost.encode += seconds_since(start);
    texts.bytes += video.conditioning.nbytes();
    first = &video;
  } else {
    video.conditioning = first->conditioning;
    warnings = first->warnings;
  }
  for (const std::string& warning : warnings)  // those of its images were told
    if (std::ranges::find(video.warnings, warning) == video.warnings.end()) warn(video, warning);
}

void Job::run(std::span<Video* const> videos, models::Pipeline& pipeline) {
  try {
    for (Video* video : videos)
      if (video->conditioning.defined()) make(*video, pipeline);
  } catch (...) {
    collect();  // throws where it was not the user who stopped the run, but the video before, which could not be
                // written
    throw;
  }
}

void Job::make(Video& video, models::Pipeline& pipeline) {
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

/// The recipe has by then all that comes of the denoising.
std::shared_ptr<Job::Files> Job::files_of(Video& video) const {
  const auto recipe = [&video](bool tiled) {
    set_tiling(video.recipe, tiled);
    return dump(video.recipe);
  };
  const RunOptions& run = video.options.run;
  return std::make_shared<Files>(KeptLatents(video.options.save_latents, run.output),
                                 FrameWriter::Text{.recipe = recipe, .caption = video.plan.prompt}, run);
}

models::Outcome Job::render(Video& video, models::Pipeline& pipeline, Files& files) {
  models::Inputs inputs = {
      .init_latents = video.init_latents, .conditioning = video.conditioning, .keep_transformer = policy_.keep_loaded};
  models::Run run = run_of(video, files.latents);
  run.frames = &files.frames;
  use_checkpoints(video, inputs, run);
  user_.begin(video);
  World* const world = policy_.world ? policy_.world() : nullptr;
  models::Outcome result = world == nullptr ? pipeline.generate(video.plan, inputs, run)
                                            : generate_over_ranks(*world, pipeline, video, inputs, std::move(run));
  result.seconds.check += video.text_cost.check;
  result.seconds.load_text_encoder = video.text_cost.load;
  result.seconds.text = video.text_cost.encode;
  result.memory.text = video.text_cost.bytes;
  add_outcome(video.recipe, result);
  return result;
}

models::Run Job::run_of(Video& video, KeptLatents& kept) {
  models::Run run = user_.watch(video);
  run.cancelled = [this, own = run.cancelled] { return cancelled_() || write_failed_ || (own && own()); };
  run.stage = [cancelled = run.cancelled, watched = run.stage](const std::string& stage) {
    if (stage == "denoise" && cancelled()) throw models::Cancelled{};  // before it is shown that steps have begun
    tell(watched, stage);
  };
  // The latents are what costs time: they stay on the disk until the video is there.
  run.latents = [this, &video, &kept, watched = run.latents](const models::Outcome& denoised) {
    tell(watched, denoised);
    add_outcome(video.recipe, denoised);
    const std::string warning = kept.save(denoised.latents, dump(video.recipe));
    if (!warning.empty()) return warn(video, warning);  // now, while there is time to make room
    user_.kept_latents(video, kept.saved());
  };
  return run;
}

bool Job::keeps_last(const Video& video) const {
  return policy_.keep_last || video.options.checkpoint_every > 0;
}

/// Goes on from the checkpoint that an earlier run left, and writes new ones.
void Job::use_checkpoints(Video& video, models::Inputs& inputs, models::Run& run) {
  OwnCheckpoint own = find_checkpoint(video.options.run.output, video.identity, video.plan.cache);
  if (!policy_.go_on_after_failure)  // rows of a set change, and a set's last line lists the checkpoints of old ones
    for (const std::string& other : own.passed_over) warn(video, other + "; this run's is " + own.path.string());
  video.checkpoint = own.path;
  inputs.resume = std::move(own.state);
  if (inputs.resume) video.resumed_at_step = inputs.resume->step;
  run.checkpoints = {.every = video.options.checkpoint_every, .last = keeps_last(video), .cancelled = true};
  // One that cannot be written only costs time, and only where the run is cut short.
  run.checkpoint = [this, &video, kept = video.resumed_at_step,
                    warned = false](const models::DenoisingState& state) mutable {
    try {
      if (state.step != kept) save_checkpoint(video.checkpoint, state, video.identity);
      kept = state.step;
      user_.kept_checkpoint(video, state.step);
    } catch (const Error& error) {
      if (!std::exchange(warned, true)) warn(video, std::string("the denoising is not kept: ") + error.what());
    }
  };
}

Job::Written Job::finish(Video& video, const models::Outcome& result, Files& files) {
  const c10::InferenceMode guard;
  Written written{.video = &video, .warnings = {}};
  try {
    const auto failure = attempt([&] { written.warnings = finish_files(video, result, files); });
    if (failure) video.fail(*failure, files.latents.saved());
  } catch (...) {
    write_failed_ = true;  // stops the video that is being denoised; collect() throws what happened
    throw;
  }
  return written;
}

/// Returns the warnings that are to be told by another thread.
std::vector<std::string> Job::finish_files(Video& video, const models::Outcome& result, Files& files) {
  const auto start = Clock::now();
  const RunOptions& run = video.options.run;
  if (!policy_.write_behind) tell(user_.watch(video).stage, "write");
  const WrittenVideo file = files.frames.finish();
  std::vector<std::string> warnings = result.warnings;
  for (const std::string& warning : {file.note, defect_warning(result.facts, files.latents)})
    if (!warning.empty()) warnings.push_back(warning);
  video.warnings.insert(video.warnings.end(), warnings.begin(), warnings.end());
  if (!policy_.write_behind)
    for (const std::string& warning : std::exchange(warnings, {})) user_.warn(video, warning);
  user_.written(video, {result, file, files.latents, start});
  // While the latents that were asked for are missing, the checkpoint is their nearest.
  remove_checkpoints({{run.output, video.identity}});
  return warnings;
}

void Job::collect() {
  if (!written_.valid()) return;
  const Written written = written_.get();
  if (written.video->failure) return user_.failed(*written.video);
  for (const std::string& warning : written.warnings) user_.warn(*written.video, warning);
  user_.done(*written.video);
}

}  // namespace sparsereel::app
