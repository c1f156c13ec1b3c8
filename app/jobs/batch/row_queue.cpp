// Takes rows from the front of the queue, and puts the rows of a dead process back there.
#include "app/jobs/batch/row_queue.h"

#include <algorithm>

namespace sparsereel::app::sets {

std::vector<int64_t> RowQueue::take(int64_t gpu, int64_t gpus) {
  const auto waiting = static_cast<int64_t>(waiting_.size());
  const int64_t most = std::max<int64_t>(1, waiting * 3 / (4 * gpus));
  std::vector<int64_t> rows;
  std::vector<QueuedRow>& taken = taken_[gpu];
  while (!waiting_.empty() && static_cast<int64_t>(rows.size()) < most) {
    if (!taken.empty() && taken.back().pipeline != waiting_.front().pipeline) break;
    // A row during which a process has ended is handed out alone, so that no other row is lost if another process ends.
    if (losses_.contains(waiting_.front().row) && !rows.empty()) break;
    taken.push_back(waiting_.front());
    rows.push_back(waiting_.front().row);
    waiting_.pop_front();
    if (losses_.contains(rows.back())) break;
  }
  return rows;
}

void RowQueue::finished(int64_t gpu, int64_t row) {
  std::erase_if(taken_[gpu], [row](const QueuedRow& each) { return each.row == row; });
}

std::vector<int64_t> RowQueue::rows_of(int64_t gpu) const {
  std::vector<int64_t> rows;
  if (const auto found = taken_.find(gpu); found != taken_.end())
    for (const QueuedRow& each : found->second) rows.push_back(each.row);
  return rows;
}

std::vector<int64_t> RowQueue::lost(int64_t gpu) {
  std::vector<QueuedRow> rows = std::move(taken_[gpu]);
  taken_.erase(gpu);
  std::vector<int64_t> given_up;
  // The process was working on its first row; its other rows are not to blame.
  if (!rows.empty() && ++losses_[rows.front().row] > 1) {
    given_up.push_back(rows.front().row);
    rows.erase(rows.begin());
  }
  waiting_.insert(waiting_.begin(), rows.begin(), rows.end());
  return given_up;
}

bool RowQueue::is_done() const {
  return waiting_.empty() && std::ranges::all_of(taken_, [](const auto& each) { return each.second.empty(); });
}

}  // namespace sparsereel::app::sets
