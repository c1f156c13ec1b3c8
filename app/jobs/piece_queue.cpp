// One lock and one condition variable suffice: a piece takes tens of milliseconds of work, so they are rarely used.
#include "app/jobs/piece_queue.h"

#include <utility>

namespace sparsereel::app {

bool PieceQueue::put(const at::Tensor& piece) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || has_room(piece.nbytes()); });
  if (stopped_) return false;
  bytes_ += piece.nbytes();
  waiting_.push_back(piece);
  changed_.notify_all();
  return true;
}

std::optional<at::Tensor> PieceQueue::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || closed_ || !waiting_.empty(); });
  if (waiting_.empty()) return std::nullopt;
  at::Tensor piece = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_ -= piece.nbytes();
  changed_.notify_all();
  return piece;
}

void PieceQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void PieceQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  waiting_.clear();
  bytes_ = 0;
  changed_.notify_all();
}

bool PieceQueue::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace sparsereel::app
