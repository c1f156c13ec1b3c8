// Makes the waiting videos one after the other, in a thread that owns the loaded model.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "app/jobs/job.h"
#include "app/jobs/kept_texts.h"
#include "app/jobs/preview.h"
#include "app/serve/events.h"
#include "app/serve/metrics.h"
#include "app/serve/planner.h"
#include "app/serve/store.h"

namespace sparsereel::app::serve {

class Worker : private JobUser, private models::RunObserver {
 public:
  Worker(const ServedModel& model, VideoStore& store, EventHub& events, Metrics& metrics, bool is_quiet);
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  /// True once the model is open.
  bool is_ready() const { return ready_; }
  /// Returns the reason why the thread ended by itself; null if it did not. Its error ends the server.
  std::exception_ptr failure() const;
  /// Returns the newest preview of the video that runs or ran last, as a PNG; empty if there is none.
  std::string preview(const std::string& id) const;
  /// Tells clients about a video's new state, that it was removed, or which videos wait.
  void publish(const std::string& id);
  void publish_deleted(const std::string& id);
  void publish_queue();
  /// Looks at the queue again.
  void wake();
  /// Cancels the video if it runs. Returns false if it does not.
  bool cancel(const std::string& id);
  /// Keeps the steps of the running video, and waits for the thread. The video goes on with the next server.
  void stop();

 private:
  void work();
  std::optional<VideoRecord> begin_next();
  void make(const VideoRecord& record);
  void make_video(const VideoRecord& record);
  models::Pipeline& pipeline_for(const VideoTask& video);
  void resolve(VideoTask& video, models::Pipeline& pipeline);
  void fail(const VideoRecord& record, const std::string& code, const Error& error);
  std::unique_ptr<Previews> previews_of(const std::string& id, const models::Pipeline& pipeline);
  void show(const std::string& id, int64_t step, const at::Tensor& frames);
  void change(const std::function<void(VideoProgress&)>& change);
  void say(const std::string& line) const;
  bool must_stop() const;

  models::RunObserver& observer() override { return *this; }
  void warn(const VideoTask& video, const std::string& warning) override;
  void written(const VideoTask& video, const Made& made) override;
  void stage(const std::string& name) override;
  void step(const models::StepDone& step) override;
  void decoded(const models::PieceProgress& pieces) override;

  const ServedModel& model_;
  VideoStore& store_;
  EventHub& events_;
  Metrics& metrics_;
  const bool is_quiet_;
  KeptTexts texts_;
  std::string pipeline_key_;
  std::shared_ptr<models::Pipeline> pipeline_;
  std::atomic<bool> ready_ = false, stopping_ = false, cancelled_ = false;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
  std::string current_;  // the running video; empty if there is none
  struct {
    std::string id, png;
  } newest_preview_;
  Previews* previews_ = nullptr;  // of the running video; null if the colors of its latents are unknown
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point begun_;
  double step_seconds_ = 0, decode_seconds_ = 0;  // of this video's steps; of the last video's decoding
  std::thread thread_;
};

}  // namespace sparsereel::app::serve
