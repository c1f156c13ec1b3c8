// Takes videos from the queue and has them made one after the other, in a thread of its own. A server has a worker for
// each video that it makes at the same time; see workers.h.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "app/serve/maker.h"
#include "app/serve/metrics.h"
#include "app/serve/publisher.h"
#include "app/serve/store.h"

namespace sparsereel::app::serve {

struct ServedModel;

/// The parts of a server that its workers use. They must outlive the workers.
struct WorkerParts {
  const ServedModel& model;
  VideoStore& store;
  Publisher& publisher;
  Metrics& metrics;
  bool is_quiet = false;
  std::chrono::milliseconds most_cancel_wait{20'000};  // how long cancel() waits for the video to end
};

class Worker : private MakingObserver {
 public:
  using StartMaker = std::function<std::unique_ptr<Maker>()>;

  /// `start_maker` is called in the worker's thread: at first, and when the maker is lost. `wake_all` wakes all workers
  /// of the server, because a video waits again.
  Worker(const WorkerParts& parts, StartMaker start_maker, std::function<void()> wake_all);
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  /// True once the model is open.
  bool is_ready() const { return ready_; }
  /// Returns the reason why the thread ended by itself; null if it did not.
  std::exception_ptr failure() const;
  /// Returns the newest preview of the video that runs or ran last, as a PNG; empty if `id` is another video.
  std::string preview(const std::string& id) const;
  /// Looks at the queue again.
  void wake();
  /// Cancels the video if it runs here. Returns false if it does not.
  bool cancel(const std::string& id);
  /// Makes the thread save the finished steps of the running video and begin no other video. The next server continues
  /// the video from these steps.
  void begin_stop();
  /// Waits for the thread after begin_stop().
  void stop();

 private:
  void work();
  void open_maker();
  void replace_maker();
  std::optional<VideoRecord> begin_next();
  void make(const VideoRecord& record);
  MadeVideo made(const VideoRecord& record);
  void end(const VideoRecord& record, const MadeVideo& made);
  void lose(const VideoRecord& record, const MakerLost& lost);
  void forget_current(const std::function<void()>& change);
  void fail(const VideoRecord& record, const std::string& code, const Error& error);
  void change(const std::function<void(VideoProgress&)>& change);
  void say(const std::string& line) const;
  bool must_stop() const;

  void stage(const std::string& name) override;
  void step(int64_t step, int64_t steps, double seconds) override;
  void decoded(double share) override;
  void preview(int64_t step, std::string png) override;
  void warn(const std::string& warning) override;

  const WorkerParts parts_;
  const StartMaker start_maker_;
  const std::function<void()> wake_all_;
  std::unique_ptr<Maker> maker_;  // only for the thread
  std::atomic<bool> ready_ = false, stopping_ = false, cancelled_ = false;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
  std::string current_;  // the running video; empty if there is none
  struct {
    std::string id, png;
  } newest_preview_;
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point begun_;
  double step_seconds_ = 0, decode_seconds_ = 0;  // seconds of this video's steps; seconds of the last video's decoding
  std::thread thread_;
};

}  // namespace sparsereel::app::serve
