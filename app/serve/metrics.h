// Counts what the server does, for Prometheus. Safe for threads. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace sparsereel::app::serve {

/// The state of the server at the time of a request for /metrics.
struct MetricsNow {
  size_t waiting = 0, running = 0, event_clients = 0;
  bool is_ready = false;
};

class Metrics {
 public:
  void answered(int status);
  /// Counts a video that has ended. `outcome` is "completed", "failed" or "cancelled"; `seconds` is the time from its
  /// start to its end, which counts only for completed videos.
  void ended(const std::string& outcome, double seconds);
  void stepped(double seconds);
  /// Returns the counters in version 0.0.4 of Prometheus' text format.
  std::string text(const MetricsNow& now) const;

 private:
  mutable std::mutex mutex_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::map<int, uint64_t> answers_;  // numbers of answers, by HTTP status
  std::map<std::string, uint64_t> outcomes_ = {{"cancelled", 0}, {"completed", 0}, {"failed", 0}};
  double video_seconds_ = 0, step_seconds_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace sparsereel::app::serve
