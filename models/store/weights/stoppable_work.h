// Lets work that is no longer needed end early, between two tensors or layers.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

namespace sparsereel::models {

/// Thrown by work that was told to stop. Only the code that told it to stop catches this.
struct WorkStopped {};

/// While this object exists, its thread calls `stop` before each tensor that a WeightReader loads, each convolution of
/// a VAE and each layer of an encoder. If `stop` returns true, that work throws WorkStopped.
class StoppableWork {
 public:
  explicit StoppableWork(std::function<bool()> stop) : stop_(std::move(stop)), before_(std::exchange(here_, &stop_)) {}
  explicit StoppableWork(const std::atomic<bool>& stop) : StoppableWork([&stop] { return stop.load(); }) {}
  ~StoppableWork() { here_ = before_; }
  StoppableWork(const StoppableWork&) = delete;
  StoppableWork& operator=(const StoppableWork&) = delete;

  static void throw_if_stopped() {
    if (here_ != nullptr && *here_ && (*here_)()) throw WorkStopped{};
  }

 private:
  static inline thread_local const std::function<bool()>* here_ = nullptr;

  const std::function<bool()> stop_;
  const std::function<bool()>* before_;
};

}  // namespace sparsereel::models
