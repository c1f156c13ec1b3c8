// Finds the rank value at which the budget is spent or the bound is reached, and marks the blocks above it. A block's
// rank value is its value in RankedHead::rank: the higher, the more the block matters. The word rank alone means one of
// the processes that share the heads.
#include "attention/cpu/budget.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "attention/length_sum.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Calls f(head, tile, number) for every tile that takes part in the budget. `number` is the tile's index among all
/// tiles of all heads. Returns how many tiles all heads have.
template <typename F>
int64_t each_tile(std::span<RankedHead> heads, const F& f) {
  int64_t number = 0;
  for (RankedHead& head : heads)
    for (int64_t tile = 0; tile < head.tiles(); ++tile, ++number)
      if (head.dense[static_cast<size_t>(tile)] == 0) f(head, tile, number);
  return number;
}

/// Calls f(block, rank value) for every candidate of a tile. A NaN is passed as infinity.
template <typename F>
void each_candidate(const RankedHead& head, int64_t tile, const F& f) {
  const float* rank = head.rank.row(tile);
  for (int64_t j = 0; j < head.rank.blocks; ++j)
    if (head.is_candidate(tile, j)) f(j, std::isnan(rank[j]) ? kInfinity : rank[j]);
}

/// The candidates to keep: all with a rank value above the threshold, and some of those whose rank value equals it
/// (ties).
struct Cut {
  float threshold = -kInfinity;  // the default keeps every candidate
  int64_t ties = 0, tiles = 0;   // number of ties to keep over all tiles; number of tiles of all ranks
  int64_t first_tile = 0;        // index of this call's first tile among the tiles of all ranks

  int64_t ties_of(int64_t tile) const { return (tile + 1) * ties / tiles - tile * ties / tiles; }
};

/// Keeps the best candidate of a tile (the first one if several are best), and removes it from the candidates. Returns
/// false if there is none.
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

/// The candidates of all tiles except each tile's best one, and how many of them to keep (`count`).
struct Wanted {
  std::vector<float> ranks{};
  int64_t count = 0;
  int64_t tiles = 0;
};

Wanted want(std::span<RankedHead> heads, double topk) {
  Wanted wanted;
  wanted.tiles = each_tile(heads, [&](RankedHead& head, int64_t tile, int64_t) {
    if (keep_best(head, tile)) wanted.count += head.granted(tile, topk) - 1;
    each_candidate(head, tile, [&](int64_t, float rank) { wanted.ranks.push_back(rank); });
  });
  return wanted;
}

/// Returns the cut that keeps `wanted` candidates. lowest: the lowest rank value that a kept candidate has. `count`
/// candidates have this value; `above` candidates have higher ones.
Cut cut_at(float lowest, int64_t wanted, int64_t above, int64_t count, int64_t tiles) {
  const int64_t ties = wanted - above;
  return {.threshold = count == ties ? std::nextafter(lowest, -kInfinity) : lowest, .ties = ties, .tiles = tiles};
}

Cut find_cut(Wanted wanted) {
  std::vector<float>& ranks = wanted.ranks;
  if (wanted.count >= std::ssize(ranks)) return {.tiles = wanted.tiles};
  if (wanted.count == 0) return {.threshold = kInfinity, .tiles = wanted.tiles};
  const auto last = ranks.begin() + static_cast<ptrdiff_t>(wanted.count) - 1;
  std::nth_element(ranks.begin(), last, ranks.end(), std::greater<>());
  const float lowest = *last;
  const int64_t above = std::count_if(ranks.begin(), last, [&](float r) { return r > lowest; });
  return cut_at(lowest, wanted.count, above, std::count(ranks.begin(), ranks.end(), lowest), wanted.tiles);
}

/// Maps floats to unsigned integers that have the same order.
uint32_t ordered(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0F);  // -0 becomes 0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

float from_ordered(uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

/// Finds the rank value at which the budget of the heads of all ranks ends. A key is a rank value as an integer
/// (ordered()). The key at which the budget ends is found digit by digit, from the highest digit down. The ranks add up
/// only integers, so the result does not depend on the order of additions.
class SharedCut {
 public:
  SharedCut(const Wanted& wanted, const HeadPart& part) : part_(part) {
    for (const float rank : wanted.ranks) keys_.push_back(ordered(rank));
  }

  Cut find(int64_t wanted, int64_t tiles) {
    int64_t above = 0;  // number of keys that are known to be above the key at which the budget ends
    for (int shift = kKeyBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
      const std::vector<int64_t> counts = count_digits(shift);
      int64_t digit = kDigits - 1;
      while (above + counts[static_cast<size_t>(digit)] < wanted) above += counts[static_cast<size_t>(digit--)];
      prefix_ |= static_cast<uint32_t>(digit) << shift;
      at_prefix_ = counts[static_cast<size_t>(digit)];
    }
    return cut_at(from_ordered(prefix_), wanted, above, at_prefix_, tiles);
  }

 private:
  static constexpr int kKeyBits = 32, kDigitBits = 8;
  static constexpr int64_t kDigits = int64_t{1} << kDigitBits;

  /// Returns, for each value of the next digit, the number of keys of all ranks that begin with prefix_ and this digit.
  std::vector<int64_t> count_digits(int shift) const {
    std::vector<int64_t> counts(kDigits);
    const uint64_t known = uint64_t{prefix_} >> (shift + kDigitBits);
    for (const uint32_t key : keys_)
      if (uint64_t{key} >> (shift + kDigitBits) == known) ++counts[key >> shift & (kDigits - 1)];
    part_.sum(counts.data(), kDigits);
    return counts;
  }

  const HeadPart& part_;
  std::vector<uint32_t> keys_;
  uint32_t prefix_ = 0;
  int64_t at_prefix_ = 0;
};

Cut find_shared_cut(const Wanted& own, const HeadPart& part, size_t heads) {
  const int64_t tiles = own.tiles / static_cast<int64_t>(heads);  // tiles per head; all heads have the same number
  int64_t sums[] = {own.count, std::ssize(own.ranks)};
  part.sum(sums, std::ssize(sums));
  const auto [wanted, candidates] = sums;
  Cut cut{.tiles = tiles * part.all};
  if (wanted == 0) cut.threshold = kInfinity;
  if (wanted > 0 && wanted < candidates) cut = SharedCut(own, part).find(wanted, cut.tiles);
  cut.first_tile = tiles * part.first;
  return cut;
}

/// Returns the mean output length over the heads of all ranks.
double mean_length(std::span<const RankedHead> heads, const HeadPart* part) {
  LengthSum sum;
  for (const RankedHead& head : heads)
    for (size_t tile = 0; tile < head.tile_lengths.size(); tile += kLengthTiles) sum.add(head.tile_lengths[tile]);
  if (part != nullptr && part->shares_budget()) {
    auto numbers = std::bit_cast<std::array<int64_t, sizeof(LengthSum) / sizeof(int64_t)>>(sum);
    part->sum(numbers.data(), std::ssize(numbers));
    sum = std::bit_cast<LengthSum>(numbers);
  }
  return sum.mean();
}

void keep(std::span<RankedHead> heads, const Cut& cut) {
  each_tile(heads, [&](RankedHead& head, int64_t tile, int64_t number) {
    int64_t ties = cut.ties_of(cut.first_tile + number);
    each_candidate(head, tile, [&](int64_t block, float rank) {
      const bool broken = rank == kInfinity;  // each_candidate() passes a NaN as infinity
      if (rank > cut.threshold || broken || (rank == cut.threshold && ties-- > 0)) head.kept_row(tile)[block] = 1;
    });
  });
}

}  // namespace

void spend_budget(std::span<RankedHead> heads, double topk, const HeadPart* part) {
  Wanted wanted = want(heads, topk);
  const bool shared = part != nullptr && part->shares_budget();
  keep(heads, shared ? find_shared_cut(wanted, *part, heads.size()) : find_cut(std::move(wanted)));
}

void keep_above_bound(std::span<RankedHead> heads, double bound, const HeadPart* part) {
  const int64_t tiles = each_tile(heads, [](RankedHead& head, int64_t tile, int64_t) { keep_best(head, tile); });
  const double length = mean_length(heads, part);
  Cut cut{.tiles = std::max<int64_t>(tiles, 1)};
  if (!std::isnan(length)) cut.threshold = static_cast<float>(std::log(bound * length + kLeastError));
  keep(heads, cut);
}

}  // namespace sparsereel::attention::cpu
