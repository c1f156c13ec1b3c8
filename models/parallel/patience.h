// Limits how long a process waits for others. No tensors.
#pragma once

#include <algorithm>
#include <chrono>

namespace sparsereel::models {

/// A limit on waiting that leaves out the time while this process is stopped, for example by Ctrl-Z: the other
/// processes were stopped too, so they are not late. The owner waits in short steps. At most the length of two steps is
/// counted between two calls of step(), however long the process was stopped.
class Patience {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// `whole` is a common limit for several waits. It must outlive this object.
  explicit Patience(milliseconds limit, Patience* whole = nullptr)
      : limit_(limit),
        left_(limit),
        longest_(std::clamp(limit / 10, milliseconds(1), milliseconds(1000))),
        whole_(whole) {}

  /// Counts the time since the last call. Returns how long to wait before the next call; 0 once the limit is over.
  milliseconds step() {
    const auto now = Clock::now();
    left_ -= std::min<Clock::duration>(now - last_, 2 * longest_);
    last_ = now;
    const auto left = std::max(std::chrono::ceil<milliseconds>(left_), milliseconds(0));
    const auto wait = std::min(left, longest_);
    return whole_ == nullptr ? wait : std::min(wait, whole_->step());
  }
  /// Restarts the limit. Call this when something has arrived.
  void renew() {
    left_ = limit_;
    last_ = Clock::now();
  }
  milliseconds limit() const { return limit_; }

 private:
  using Clock = std::chrono::steady_clock;

  milliseconds limit_;
  Clock::duration left_;
  milliseconds longest_;
  Patience* whole_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace sparsereel::models
