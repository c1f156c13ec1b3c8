// Loading that nobody waits for any more ends between two tensors.
#pragma once

#include <atomic>
#include <utility>

namespace sparsereel::models {

/// Thrown by what loads weights, once it is to stop: to whoever has said so, and to nobody else.
struct LoadingStopped {};

/// While one lives, what its thread loads by a WeightReader looks at `stop` before each tensor.
class StoppableLoading {
 public:
  explicit StoppableLoading(const std::atomic<bool>& stop) : before_(std::exchange(here_, &stop)) {}
  ~StoppableLoading() { here_ = before_; }
  StoppableLoading(const StoppableLoading&) = delete;
  StoppableLoading& operator=(const StoppableLoading&) = delete;

  static void throw_if_stopped() {
    if (here_ != nullptr && *here_) throw LoadingStopped{};
  }

 private:
  static inline thread_local const std::atomic<bool>* here_ = nullptr;

  const std::atomic<bool>* before_;
};

}  // namespace sparsereel::models
