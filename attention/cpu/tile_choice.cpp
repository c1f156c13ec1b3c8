// Chooses the best blocks of a tile: a given number, those that hold a given share of the total mass or error, or as
// many as an error bound requires.
#include "attention/cpu/tile_choice.h"

#include <algorithm>
#include <cmath>

namespace sparsereel::attention::cpu {
namespace {

/// Chooses the blocks of one tile after another. Its buffers are reused from tile to tile.
class Chooser {
 public:
  Chooser(const HeadPolicy& policy, RankedHead& head) : policy_(policy), head_(head) {}

  void choose(int64_t tile) {
    ranks_ = head_.rank.row(tile);
    order_.clear();
    for (int64_t j = 0; j < head_.rank.blocks; ++j)
      if (head_.is_candidate(tile, j)) order_.push_back(static_cast<int32_t>(j));
    if (order_.empty()) return;
    const size_t count = sort_and_count(tile);
    for (size_t i = 0; i < count; ++i) head_.kept_row(tile)[order_[i]] = 1;
  }

 private:
  auto better() const {
    return [ranks = ranks_](int32_t a, int32_t b) {
      const float x = ranks[a], y = ranks[b];
      if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
      return x > y || (!(y > x) && a < b);
    };
  }

  /// Moves the chosen blocks to the front of order_ and returns their number.
  size_t sort_and_count(int64_t tile) {
    if (policy_.selection == Selection::topk) {
      const size_t count = std::min(static_cast<size_t>(head_.granted(tile, policy_.topk)), order_.size());
      if (count < order_.size())
        std::nth_element(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(count), order_.end(), better());
      return count;
    }
    if (policy_.selection == Selection::cdf && policy_.cdf >= 1) return order_.size();
    std::sort(order_.begin(), order_.end(), better());
    return policy_.selection == Selection::cdf ? count_share() : count_above(tile);
  }

  size_t count_share() {
    const double top = ranks_[order_[0]];
    share_.clear();
    double total = 0;
    for (const int32_t j : order_) {
      share_.push_back(std::exp(ranks_[j] - top));
      total += share_.back();
    }
    double sum = 0;
    for (size_t i = 0; i < share_.size(); ++i) {
      sum += share_[i];
      if (sum >= policy_.cdf * total) return i + 1;
    }
    return order_.size();
  }

  /// Returns how many blocks to keep so that the sum of the others' errors stays within the bound. Keeps every block
  /// whose error is NaN, and all blocks if the bound is NaN.
  size_t count_above(int64_t tile) const {
    const double* errors = head_.error.data() + tile * head_.rank.blocks;
    size_t count = order_.size();
    double dropped = 0;
    for (; count > 0; --count) {
      dropped += errors[order_[count - 1]];
      if (!(dropped <= policy_.error * head_.output_length)) break;
    }
    return count;
  }

  const HeadPolicy& policy_;
  RankedHead& head_;
  const float* ranks_ = nullptr;  // the tile's row of RankedHead::rank
  std::vector<int32_t> order_;
  std::vector<double> share_;  // mass or error of each candidate in order_, relative to the best candidate's
};

}  // namespace

void choose_in_tiles(const HeadPolicy& policy, RankedHead& head) {
  Chooser chooser(policy, head);
  for (int64_t tile = 0; tile < head.tiles(); ++tile) chooser.choose(tile);
}

}  // namespace sparsereel::attention::cpu
