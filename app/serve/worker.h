// Takes videos from the queue and has them made one after the other, in a thread of its own. A video may still be
// written while the next one is made. A server has a worker for each video that it makes at the same time; see
// workers.h.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
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

  /// `start_maker` is called in the worker's thread: at the start, and again when the maker is lost. `wake_all` must
  /// wake all workers of the server. It is called when a lost maker's videos have returned to the queue.
  Worker(const WorkerParts& parts, StartMaker start_maker, std::function<void()> wake_all);
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  /// True once the model is open.
  bool is_ready() const { return ready_; }
  /// Returns the error that ended the thread; null if there is none.
  std::exception_ptr failure() const;
  /// Returns the newest preview of a video that runs here or is being written, as a PNG; empty if there is none.
  std::string preview(const std::string& id) const;
  /// Makes the worker look at the queue again.
  void wake();
  /// Cancels the video if it runs here, even if it is already being written, and waits until it has ended, but no
  /// longer than most_cancel_wait. Returns false if it does not run here.
  bool cancel(const std::string& id);
  /// Makes the thread save the finished steps of the running video, finish the files of the video before it, and stop.
  /// The next server continues the video from these steps.
  void begin_stop();
  /// Calls begin_stop() and waits for the thread.
  void stop();

 private:
  void work();
  void open_maker();
  void replace_maker();
  std::optional<VideoRecord> begin_next();
  void make(const VideoRecord& record);
  /// A video that has begun and has not ended.
  struct Running {
    VideoRecord record;
    std::chrono::steady_clock::time_point begun;
    bool is_cancelled = false;
    std::string preview = {};  // the newest one, as a PNG
  };

  void make_or_refuse(const VideoRecord& record);
  bool collect(const std::function<bool()>& enough);
  void complete(const Running& video, const MadeVideo& made);
  void lose(const MakerLost& lost);
  void forget(const std::string& id);
  void fail(const VideoRecord& record, const std::string& code, const Error& error);
  void change(const std::function<void(VideoProgress&)>& change);
  void say(const std::string& line) const;
  bool must_stop() const;

  void stage(const std::string& name) override;
  void step(int64_t step, int64_t steps, double seconds) override;
  void decoded(double share) override;
  void preview(int64_t step, std::string png) override;
  void warn(const std::string& id, const std::string& warning) override;
  void ended(const std::string& id, const MadeVideo& made) override;

  const WorkerParts parts_;
  const StartMaker start_maker_;
  const std::function<void()> wake_all_;
  std::unique_ptr<Maker> maker_;  // used only in the worker's thread
  std::atomic<bool> ready_ = false, stopping_ = false, cancelled_ = false;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
  std::string current_;  // the video that is made, or was made last; only the worker's thread changes it
  std::map<std::string, Running> running_;  // by id: the current video, and the one before it while that is written
  std::exception_ptr failure_;
  double step_seconds_ = 0;                                     // smoothed duration of the current video's steps
  std::atomic<double> decode_seconds_ = 0, write_seconds_ = 0;  // of the video that was completed last
  std::thread thread_;
};

}  // namespace sparsereel::app::serve
