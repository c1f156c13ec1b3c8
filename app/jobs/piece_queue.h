// Hands pieces of a video from the thread that decodes them to the thread that writes them.
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
  /// `most_bytes` limits the waiting pieces, but an empty queue takes a piece of any size.
  explicit PieceQueue(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Waits until the piece fits within the limit, and adds it. Returns false if stop() was called.
  bool put(const at::Tensor& piece);
  /// Waits for the next piece. Returns nothing after stop(), or after close() if all pieces were taken.
  std::optional<at::Tensor> take();
  /// Says that no more pieces come. Call it after the last piece.
  void close();
  /// Drops the waiting pieces, and ends the waits of put() and take(). Either side may call it.
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
