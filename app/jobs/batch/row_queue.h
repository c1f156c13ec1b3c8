// Rows of a set on their way to cards: each is with one card at a time, and comes back where that ends. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace sparsereel::app::sets {

/// A row, and the pipeline that serves it: a card takes rows of one at a time.
struct QueuedRow {
  int64_t row = 0;
  size_t pipeline = 0;
};

class RowQueue {
 public:
  /// rows: in the order of pipelines.
  explicit RowQueue(const std::vector<QueuedRow>& rows) : waiting_(rows.begin(), rows.end()) {}

  /// The next rows for a card that has none: many while many are left, so that it encodes their texts together, and one
  /// at the end, so that all cards end at about the same time. Empty where none waits.
  std::vector<int64_t> take(int64_t card, int64_t cards);
  void finished(int64_t card, int64_t row);
  /// The rows that are with the card.
  std::vector<int64_t> rows_of(int64_t card) const;
  /// The card is gone: its rows wait again, before all others. Returns those for which it was the second one: what ends
  /// two cards is given to no third.
  std::vector<int64_t> lost(int64_t card);
  /// No row waits, and none is with a card.
  bool is_done() const;

 private:
  std::deque<QueuedRow> waiting_;
  std::map<int64_t, std::vector<QueuedRow>> taken_;  // by card
  std::map<int64_t, int> losses_;                    // by row
};

}  // namespace sparsereel::app::sets
