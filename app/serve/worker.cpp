// Follows each video from the queue to its end.
#include "app/serve/worker.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <utility>
#include <vector>

#include "app/clock.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/last_line.h"
#include "app/serve/planner.h"
#include "hilbert/error.h"
#include "models/engine/failure.h"
#include "models/request/run.h"

namespace sparsereel::app::serve {

Worker::Worker(const WorkerParts& parts, StartMaker start_maker, std::function<void()> wake_all)
    : parts_(parts), start_maker_(std::move(start_maker)), wake_all_(std::move(wake_all)) {}

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
    maker_.reset();
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
  std::unique_lock lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end()) return false;
  found->second.is_cancelled = true;
  if (id == current_) cancelled_ = true;
  woken_.wait_for(lock, parts_.most_cancel_wait, [&] { return !running_.contains(id) || stopping_; });
  return true;
}

void Worker::begin_stop() {
  stopping_ = true;
  wake();
}

void Worker::stop() {
  begin_stop();
  if (thread_.joinable()) thread_.join();
}

bool Worker::must_stop() const {
  return stopping_ || interrupted();
}

void Worker::say(const std::string& line) const {
  if (!parts_.is_quiet) std::cerr << line + "\n";
}

/// Opens the model, then makes videos until the server stops.
void Worker::work() {
  open_maker();
  ready_ = true;
  const auto has_work = [this] { return must_stop() || parts_.store.waiting() > 0; };
  for (bool has_ended = true; !must_stop();) {
    for (const std::string& id : parts_.store.remove_old()) parts_.publisher.deleted(id);
    if (!maker_->is_alive()) {
      // The lost maker may still have a video. Receive its end, or put it back into the queue.
      collect([] { return false; });
      replace_maker();
    }
    if (const auto record = begin_next()) {
      make(*record);
      // If an earlier attempt at this video ended a server, wait until the video is written before another one begins.
      // Otherwise the other one would be blamed too if the server ends again.
      has_ended = record->is_retry && collect([] { return false; });
      continue;
    }
    if (!has_ended) {
      has_ended = collect(has_work);
      continue;
    }
    constexpr std::chrono::minutes kLook{1};  // between two removals by --keep
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, kLook, [&] { return is_woken_ || stopping_; });
    is_woken_ = false;
  }
  collect([] { return false; });
}

void Worker::open_maker() {
  maker_ = start_maker_();
  maker_->open(*this);
}

void Worker::replace_maker() {
  maker_.reset();  // frees the GPU for the next maker
  open_maker();
}

/// Takes the next video. Holds the lock, so that cancel() finds each video either in the queue or in running_.
std::optional<VideoRecord> Worker::begin_next() {
  const std::lock_guard lock(mutex_);
  std::optional<VideoRecord> record = parts_.store.begin_next();
  current_ = record ? record->id : "";
  cancelled_ = false;
  if (record) running_[record->id] = {.record = *record, .begun = std::chrono::steady_clock::now()};
  return record;
}

void Worker::make(const VideoRecord& record) {
  step_seconds_ = 0;
  parts_.publisher.video(record.id);
  parts_.publisher.queue();
  say(record.id + ": begins");
  try {
    make_or_refuse(record);
  } catch (const MakerLost& lost) {
    lose(lost);
  }
}

void Worker::make_or_refuse(const VideoRecord& record) {
  const MadeVideo refused = outcome_of([&]() -> MadeVideo {
    if (record.attempts > VideoStore::kMostAttempts)
      throw run_failure("the server, or the process of a GPU, ended " + std::to_string(VideoStore::kMostAttempts) +
                            " times while it made this video",
                        "ask for a smaller video, or see the server's output");
    if (record.model != parts_.model.name)
      throw bad_input(
          "the video was asked of the model " + record.model + ", but the server now has " + parts_.model.name,
          "ask for it again, or start the server with that model");
    return {};
  });
  if (!refused.code.empty()) return ended(record.id, refused);
  maker_->make(record, [this] { return cancelled_ || must_stop(); });
}

/// Waits for videos that are still being written, or until `enough` returns true. Returns true if all have ended.
bool Worker::collect(const std::function<bool()>& enough) {
  try {
    return maker_->collect(enough);
  } catch (const MakerLost& lost) {
    lose(lost);
    return true;
  }
}

void Worker::ended(const std::string& id, const MadeVideo& made) {
  Running video;
  {
    const std::lock_guard lock(mutex_);
    video = running_.at(id);
  }
  try {
    if (made.code.empty()) {
      complete(video, made);
    } else if (made.is_cancelled() && !video.is_cancelled) {
      parts_.store.pause(id);  // the server stops; the next one continues the video
      return parts_.publisher.video(id);
    } else {
      fail(video.record, made.code, *made.failure);
    }
  } catch (...) {  // must not end the video that is made meanwhile
    say(id + ": warning: " + models::as_error(std::current_exception()).what());
  }
  forget(id);
  parts_.publisher.video(id);
}

void Worker::complete(const Running& video, const MadeVideo& made) {
  const std::string& id = video.record.id;
  const MadeVideo kept = outcome_of([&] {
    if (video.is_cancelled) {  // the user cancelled it while it was being written
      parts_.store.remove_content(id);
      throw models::Cancelled{};
    }
    parts_.store.complete(id, made.recipe);
    return made;
  });
  if (!kept.code.empty()) return fail(video.record, kept.code, *kept.failure);
  decode_seconds_ = made.decode_seconds;
  write_seconds_ = made.write_seconds;
  parts_.metrics.ended("completed", seconds_since(video.begun));
  say(id + ": done in " + duration_text(seconds_since(video.begun)));
}

/// Called when the maker is lost: puts its videos back into the queue, unless they were cancelled. Holds the lock, so
/// that cancel() finds each video either in the queue or in running_.
void Worker::lose(const MakerLost& lost) {
  std::cerr << "warning: " + std::string(lost.what()) + "; it is started again\n";
  std::vector<Running> all;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, video] : running_) all.push_back(std::move(video));
    std::ranges::sort(all, std::greater(), [](const Running& video) { return video.record.order; });
    for (const Running& video : all) {
      if (video.is_cancelled)
        fail(video.record, "cancelled", Error(ErrorKind::cancelled, "the video was cancelled", ""));
      else
        parts_.store.wait_again(video.record.id);  // puts it before all others, so `all` has the newest video first
    }
    running_.clear();
  }
  woken_.notify_all();
  for (const Running& video : all) parts_.publisher.video(video.record.id);
  parts_.publisher.queue();
  wake_all_();
}

void Worker::forget(const std::string& id) {
  {
    const std::lock_guard lock(mutex_);
    running_.erase(id);
  }
  woken_.notify_all();
}

void Worker::fail(const VideoRecord& record, const std::string& code, const Error& error) {
  std::string full = error.what();
  if (!error.remedy().empty()) full += "; " + error.remedy();
  std::string text = parts_.model.hidden.for_clients(full);
  const std::string own = record.id + ": ";  // removed, because the client knows which video it is
  for (size_t place = text.find(own); place != std::string::npos; place = text.find(own)) text.erase(place, own.size());
  parts_.store.remove_unfinished(record.id);  // first, because a full disk may have no room for the record
  parts_.store.fail(record.id, code, text);
  parts_.metrics.ended(code == "cancelled" ? code : "failed", 0);
  say(record.id + ": " + full);
}

std::string Worker::preview(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  return found == running_.end() ? std::string() : found->second.preview;
}

void Worker::change(const std::function<void(VideoProgress&)>& change) {
  parts_.store.progress(current_, [&](VideoRecord& record) { change(record.progress); });
  parts_.publisher.video(current_);
}

void Worker::stage(const std::string& name) {
  change([&](VideoProgress& progress) { progress.stage = name; });
}

void Worker::step(int64_t step, int64_t steps, double seconds) {
  parts_.metrics.stepped(seconds);
  step_seconds_ = step_seconds_ == 0 ? seconds : 0.7 * step_seconds_ + 0.3 * seconds;
  change([&](VideoProgress& progress) {
    progress.step = step;
    progress.steps = steps;
    progress.eta = static_cast<double>(steps - step) * step_seconds_ + decode_seconds_ + write_seconds_;
  });
}

void Worker::decoded(double share) {
  change([&](VideoProgress& progress) {
    progress.stage_share = share;
    progress.eta = decode_seconds_ > 0 ? decode_seconds_ * (1 - share) + write_seconds_ : -1;
  });
}

void Worker::preview(int64_t step, std::string png) {
  const std::string id = current_;  // needs no lock: it changes only between two videos, when no preview is being made
  {
    const std::lock_guard lock(mutex_);
    running_.at(id).preview = std::move(png);
  }
  parts_.store.progress(id, [&](VideoRecord& record) { record.preview_step = step; });
  parts_.publisher.preview(id, step);
}

void Worker::warn(const std::string& id, const std::string& warning) {
  say(id + ": warning: " + warning);
  parts_.store.progress(
      id, [text = parts_.model.hidden.for_clients(warning)](VideoRecord& record) { record.warnings.push_back(text); });
  parts_.publisher.video(id);
}

}  // namespace sparsereel::app::serve
