// Pieces of a video on their way from the thread that decodes them to the one that writes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

namespace sparsereel::app {

class PieceQueue {
 public:
  /// Of what waits: one piece always finds room.
  explicit PieceQueue(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Waits for room. False: nobody takes pieces any more.
  bool put(const at::Tensor& piece);
  /// Waits for the next one. Nothing: there are no more.
  std::optional<at::Tensor> take();
  /// The last piece was put.
  void close();
  /// By either side: what waits is dropped, and nobody waits any longer.
  void stop();
  bool stopped() const;

 private:
  bool has_room(uint64_t bytes) const { return waiting_.empty() || bytes_ + bytes <= most_bytes_; }

  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<at::Tensor> waiting_;
  uint64_t bytes_ = 0;
  bool closed_ = false, stopped_ = false;
};

}  // namespace sparsereel::app
