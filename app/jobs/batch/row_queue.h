// Hands the rows of a set to GPU processes. No row is given to two processes at the same time. If a process ends, its
// rows return to the queue. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace sparsereel::app::sets {

/// A row and the pipeline that serves it. A process takes rows of one pipeline at a time.
struct QueuedRow {
  int64_t row = 0;
  size_t pipeline = 0;
};

class RowQueue {
 public:
  /// Rows with the same pipeline must be next to each other in `rows`.
  explicit RowQueue(const std::vector<QueuedRow>& rows) : waiting_(rows.begin(), rows.end()) {}

  /// Returns the next rows for process `gpu`, which must have no rows; empty if no row waits. `gpus` is the number of
  /// processes that run. While many rows are left it returns many, so that their texts are encoded together. Near the
  /// end it returns one, so that all processes end at about the same time.
  std::vector<int64_t> take(int64_t gpu, int64_t gpus);
  void finished(int64_t gpu, int64_t row);
  /// Returns the rows that the process has taken and not finished.
  std::vector<int64_t> rows_of(int64_t gpu) const;
  /// Puts the rows of a dead process back at the front of the queue. If another process has already ended while it made
  /// the first of these rows, that row is not put back, but returned, so that the caller reports it as failed.
  std::vector<int64_t> lost(int64_t gpu);
  /// Returns true if no row waits and no process has one.
  bool is_done() const;

 private:
  std::deque<QueuedRow> waiting_;
  std::map<int64_t, std::vector<QueuedRow>> taken_;  // by process: rows that it has taken and not finished
  std::map<int64_t, int> losses_;                    // by row: how many processes ended while they made it
};

}  // namespace sparsereel::app::sets
