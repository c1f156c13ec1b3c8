// Finds the rank that the budget reaches down to, then marks what is above.
#include "attention/cpu/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace sparsereel::attention::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Calls f(head, tile, its number among all) for every tile that has a part in the budget. Returns how many all are.
template <typename F>
int64_t each_tile(std::span<RankedHead> heads, const F& f) {
  int64_t number = 0;
  for (RankedHead& head : heads)
    for (int64_t tile = 0; tile < head.tiles(); ++tile, ++number)
      if (head.dense[static_cast<size_t>(tile)] == 0) f(head, tile, number);
  return number;
}

/// Calls f(block, rank) for every candidate of a tile; a NaN as infinity.
template <typename F>
void each_candidate(const RankedHead& head, int64_t tile, const F& f) {
  const float* rank = head.rank.row(tile);
  for (int64_t j = 0; j < head.rank.blocks; ++j)
    if (head.is_candidate(tile, j)) f(j, std::isnan(rank[j]) ? kInfinity : rank[j]);
}

/// Candidates above the threshold are kept, and some of those at it.
struct Cut {
  float threshold = -kInfinity;  // as it stands: every candidate is above
  int64_t ties = 0, tiles = 0;   // to keep of all tiles; how many tiles these are

  int64_t ties_of(int64_t tile) const { return (tile + 1) * ties / tiles - tile * ties / tiles; }
};

/// Keeps the first of a tile's best candidates, which is none any more. Returns whether there was one.
bool keep_best(RankedHead& head, int64_t tile) {
  int64_t best = -1;
  float most = 0;
  each_candidate(head, tile, [&](int64_t block, float rank) {
    if (best >= 0 && rank <= most) return;
    best = block;
    most = rank;
  });
  if (best < 0) return false;
  head.kept_row(tile)[best] = 1;
  head.rank.row(tile)[best] = -kInfinity;
  return true;
}

Cut find_cut(std::span<RankedHead> heads, double topk) {
  Cut cut;
  size_t wanted = 0;
  std::vector<float> ranks;
  cut.tiles = each_tile(heads, [&](RankedHead& head, int64_t tile, int64_t) {
    if (keep_best(head, tile)) wanted += static_cast<size_t>(head.granted(tile, topk)) - 1;
    each_candidate(head, tile, [&](int64_t, float rank) { ranks.push_back(rank); });
  });
  if (wanted >= ranks.size()) return cut;
  if (wanted == 0) return {.threshold = kInfinity, .ties = 0, .tiles = cut.tiles};
  const auto last = ranks.begin() + static_cast<ptrdiff_t>(wanted) - 1;
  std::nth_element(ranks.begin(), last, ranks.end(), std::greater<>());
  const float lowest = *last;
  cut.ties = static_cast<int64_t>(wanted) - std::count_if(ranks.begin(), last, [&](float r) { return r > lowest; });
  const bool all_fit = std::count(ranks.begin(), ranks.end(), lowest) == cut.ties;
  cut.threshold = all_fit ? std::nextafter(lowest, -kInfinity) : lowest;
  return cut;
}

}  // namespace

void spend_budget(std::span<RankedHead> heads, double topk) {
  const Cut cut = find_cut(heads, topk);
  each_tile(heads, [&](RankedHead& head, int64_t tile, int64_t number) {
    int64_t ties = cut.ties_of(number);
    each_candidate(head, tile, [&](int64_t block, float rank) {
      const bool broken = rank == kInfinity;  // a NaN
      if (rank > cut.threshold || broken || (rank == cut.threshold && ties-- > 0)) head.kept_row(tile)[block] = 1;
    });
  });
}

}  // namespace sparsereel::attention::cpu
