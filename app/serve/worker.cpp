// Runs a job for each waiting video.
#include "app/serve/worker.h"

#include <c10/core/InferenceMode.h>

#include <iostream>
#include <utility>

#include "app/clock.h"
#include "app/jobs/batch/plan.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/last_line.h"
#include "app/jobs/outputs.h"
#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/failure.h"
#include "models/engine/pipeline.h"
#include "models/files/write_failure.h"

namespace sparsereel::app::serve {
namespace {

/// Returns the stage's name for clients.
std::string stage_for_clients(const std::string& name) {
  if (name == "denoise") return "steps";
  if (name == "write") return "decode";
  return name == "load" ? "text" : name;
}

}  // namespace

Worker::Worker(const ServedModel& model, VideoStore& store, EventHub& events, Metrics& metrics, bool is_quiet)
    : model_(model), store_(store), events_(events), metrics_(metrics), is_quiet_(is_quiet) {}

Worker::~Worker() {
  stop();
}

void Worker::start() {
  thread_ = std::thread([this] {
    const c10::InferenceMode guard;
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  });
}

std::exception_ptr Worker::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Worker::wake() {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  woken_.notify_all();
}

bool Worker::cancel(const std::string& id) {
  constexpr std::chrono::seconds kMostWait{20};  // a part of a step, and removing what it wrote
  std::unique_lock lock(mutex_);
  if (current_ != id) return false;
  cancelled_ = true;
  woken_.wait_for(lock, kMostWait, [&] { return current_ != id || stopping_; });
  return true;
}

void Worker::stop() {
  stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

bool Worker::must_stop() const {
  return stopping_ || interrupted();
}

void Worker::say(const std::string& line) const {
  if (!is_quiet_) std::cerr << line + "\n";
}

/// Opens the model, then makes videos until the server stops.
void Worker::work() {
  VideoTask first;
  first.settings = model_.settings;
  first.options = read_generate_options(first.settings, /*prompt_needed=*/false);
  pipeline_for(first).check_weights();
  ready_ = true;
  say("ready");
  while (!must_stop()) {
    for (const std::string& id : store_.remove_old()) publish_deleted(id);
    if (const auto record = begin_next()) {
      make(*record);
      continue;
    }
    constexpr std::chrono::minutes kLook{1};  // for --keep
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, kLook, [&] { return is_woken_ || stopping_; });
    is_woken_ = false;
  }
}

/// Takes the next video. Under the lock, so that cancel() finds each video either in the queue or here.
std::optional<VideoRecord> Worker::begin_next() {
  const std::lock_guard lock(mutex_);
  std::optional<VideoRecord> record = store_.begin_next();
  current_ = record ? record->id : "";
  cancelled_ = false;
  return record;
}

models::Pipeline& Worker::pipeline_for(const VideoTask& video) {
  const std::string key = sets::pipeline_key(video);
  if (pipeline_ && key == pipeline_key_) return *pipeline_;
  pipeline_.reset();  // frees its memory for the next model
  texts_.clear();
  pipeline_ = open_pipeline(video);
  pipeline_key_ = key;
  return *pipeline_;
}

/// Resolves the video. If there is no room beside the weights of the last video, releases the transformer.
void Worker::resolve(VideoTask& video, models::Pipeline& pipeline) {
  LoadedFiles files;
  VideoTask copy = video;
  try {
    return resolve_video(video, pipeline, files);
  } catch (const Error&) {
    if (!pipeline.has_transformer()) throw;
  }
  pipeline.release_transformer();
  video = std::move(copy);
  resolve_video(video, pipeline, files);
}

void Worker::make(const VideoRecord& record) {
  begun_ = std::chrono::steady_clock::now();
  step_seconds_ = 0;
  publish(record.id);
  publish_queue();
  say(record.id + ": begins");
  try {
    make_video(record);
    metrics_.ended("completed", seconds_since(begun_));
    say(record.id + ": done in " + duration_text(seconds_since(begun_)));
  } catch (const models::Cancelled&) {
    if (!cancelled_) return store_.pause(record.id);  // the server stops; the next one goes on with the video
    fail(record, "cancelled", Error(ErrorKind::cancelled, "the video was cancelled", ""));
  } catch (const models::DiskError& error) {
    fail(record, "disk_full", error);
  } catch (const Error& error) {
    fail(record, error.kind() == ErrorKind::bad_input ? "invalid_value" : "generation_failed", error);
  } catch (...) {
    fail(record, "generation_failed", models::as_error(std::current_exception()));
  }
  {
    const std::lock_guard lock(mutex_);
    current_.clear();
  }
  woken_.notify_all();
  publish(record.id);
}

void Worker::make_video(const VideoRecord& record) {
  if (record.attempts > VideoStore::kMostAttempts)
    throw run_failure(
        "the server ended " + std::to_string(VideoStore::kMostAttempts) + " times while it made this video",
        "ask for a smaller video, or see the server's output");
  if (record.model != model_.name)
    throw bad_input("the video was asked of the model " + record.model + ", but the server now has " + model_.name,
                    "ask for it again, or start the server with that model");
  VideoTask video = plan_video(record, model_, store_);
  models::Pipeline& pipeline = pipeline_for(video);
  resolve(video, pipeline);
  const std::unique_ptr<Previews> previews = previews_of(record.id, pipeline);  // ends before the video does
  previews_ = previews.get();
  const std::function<bool()> cancelled = [this] { return cancelled_ || must_stop(); };
  Job job(*this, cancelled,
          {.keep_loaded = true, .go_on_after_failure = true, .keep_last = true, .kept_texts = &texts_});
  const std::vector<VideoTask*> videos = {&video};
  job.load(videos, pipeline);
  if (!video.failure) job.run(videos, pipeline);
  if (video.failure) throw *video.failure;
  store_.complete(record.id, video.recipe);
}

void Worker::fail(const VideoRecord& record, const std::string& code, const Error& error) {
  std::string full = error.what();
  if (!error.remedy().empty()) full += "; " + error.remedy();
  std::string text = model_.hidden.for_clients(full);
  const std::string own = record.id + ": ";  // the client knows the video
  for (size_t place = text.find(own); place != std::string::npos; place = text.find(own)) text.erase(place, own.size());
  store_.remove_unfinished(record.id);  // first, because a full disk may have no room for the record
  store_.fail(record.id, code, text);
  metrics_.ended(code == "cancelled" ? code : "failed", 0);
  say(record.id + ": " + full);
}

std::unique_ptr<Previews> Worker::previews_of(const std::string& id, const models::Pipeline& pipeline) {
  auto preview = models::latent_preview(pipeline.family(), pipeline.spec());
  if (!preview) return nullptr;
  return std::make_unique<Previews>(*std::move(preview),
                                    [this, id](int64_t step, const at::Tensor& frames) { show(id, step, frames); });
}

/// Runs in the thread of the previews.
void Worker::show(const std::string& id, int64_t step, const at::Tensor& frames) {
  const std::vector<uint8_t> png = preview_png(frames);
  {
    const std::lock_guard lock(mutex_);
    newest_preview_ = {.id = id, .png = {png.begin(), png.end()}};
  }
  store_.progress(id, [&](VideoRecord& record) { record.preview_step = step; });
  events_.publish(id + " preview", [&] {
    return event_text("preview", nlohmann::json{{"id", id}, {"step", step}}.dump());
  });
}

std::string Worker::preview(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return newest_preview_.id == id ? newest_preview_.png : std::string();
}

void Worker::publish(const std::string& id) {
  events_.publish(id, [&] {
    const nlohmann::json video = store_.object(id);
    return video.is_null() ? std::string() : event_text("video", dump(video));
  });
}

void Worker::publish_deleted(const std::string& id) {
  events_.publish(id, [&] { return event_text("deleted", nlohmann::json{{"id", id}}.dump()); });
}

void Worker::publish_queue() {
  constexpr size_t kMostIds = 100;
  events_.publish("queue", [&] { return event_text("queue", nlohmann::json{{"ids", store_.queue(kMostIds)}}.dump()); });
}

void Worker::change(const std::function<void(VideoProgress&)>& change) {
  store_.progress(current_, [&](VideoRecord& record) { change(record.progress); });
  publish(current_);
}

void Worker::warn(const VideoTask& /*video*/, const std::string& warning) {
  say(current_ + ": warning: " + warning);
}

void Worker::written(const VideoTask& /*video*/, const Made& made) {
  made.latents.check();
  decode_seconds_ = made.result.seconds.decode;
}

void Worker::stage(const std::string& name) {
  change([&](VideoProgress& progress) { progress.stage = stage_for_clients(name); });
}

void Worker::step(const models::StepDone& step) {
  if (!step.predicted_latents) return;  // an encoded text
  metrics_.stepped(step.seconds);
  step_seconds_ = step_seconds_ == 0 ? step.seconds : 0.7 * step_seconds_ + 0.3 * step.seconds;
  if (previews_ != nullptr) previews_->step(step);
  change([&](VideoProgress& progress) {
    progress.step = step.step;
    progress.steps = step.steps;
    progress.eta = static_cast<double>(step.steps - step.step) * step_seconds_ + decode_seconds_;
  });
}

void Worker::decoded(const models::PieceProgress& pieces) {
  const double share = pieces.total > 0 ? static_cast<double>(pieces.done) / static_cast<double>(pieces.total) : 0;
  change([&](VideoProgress& progress) {
    progress.stage_share = share;
    progress.eta = decode_seconds_ > 0 ? decode_seconds_ * (1 - share) : -1;
  });
}

}  // namespace sparsereel::app::serve
