// Chooses among ranked key blocks, and writes lists or bitmaps of the chosen blocks. select.cu explains the steps.
#pragma once

#include "attention/cuda/kernels.h"
#include "attention/cuda/select/ranked_tiles.cuh"
#include "attention/cuda/tile_order.cuh"
#include "attention/cuda/visible.cuh"
#include "attention/length_sum.h"

namespace sparsereel::attention::cuda {

/// Larger predicted errors of a tile are counted as this one, so that the counter does not overflow.
constexpr float kMostOfTile = 1 << 20;

template <int D>
class Chooser : protected RankedTiles<D> {
  using Ranked = RankedTiles<D>;

 public:
  using Ranked::Ranked;

 protected:
  using Ranked::p_, Ranked::sizes_, Ranked::buffers_, Ranked::bh_, Ranked::first_tile_, Ranked::choice_;
  using Ranked::visible_in, Ranked::candidates_of, Ranked::wanted_of, Ranked::length_of;
  using Ranked::with_means_, Ranked::warp, Ranked::lane, Ranked::exists, Ranked::shares_budget, Ranked::is_bounded;

  /// Chooses for the CTA's tiles, one warp per tile, and adds the blocks and means of the lists that it writes to the
  /// call's counters. all: true if this warp's tile keeps all blocks.
  __device__ void choose_all(bool all) {
    __shared__ Found kept;
    if (threadIdx.x == 0) kept = {};
    __syncthreads();
    const int tile = first_tile_ + warp();
    if (exists(tile)) choose(tile, all, kept);
    __syncthreads();
    // One thread adds the counts of all tiles of the CTA, so that fewer threads wait for these addresses.
    if (threadIdx.x == 0) {
      count(p_, kCountKept, kept.kept);
      count(p_, kCountMeans, kept.means);
    }
  }

  Cut shared_cut_{1, kAllTies};  // for tiles that share a budget or bound; the subclass sets it

 private:
  /// Returns the cut of a tile that chooses for itself.
  __device__ Cut cut_of(int tile, const Candidates& candidates) const {
    const Spread spread = candidates.spread();
    if (spread.count == 0) return {1, kAllTies};
    switch (choice_.kind) {
      case HeadChoice::Kind::topk:
        if (const int wanted = wanted_of(tile); wanted < spread.count) return cut_by_count(candidates, wanted, spread);
        break;
      case HeadChoice::Kind::error:
        return cut_by_rest(candidates, choice_.error * mean_length());
      case HeadChoice::Kind::cdf:
        if (choice_.cdf < 1) return cut_by_mass(candidates, choice_.cdf);
        break;
      case HeadChoice::Kind::block_error:
      case HeadChoice::Kind::dense:
        break;
    }
    return {1, kAllTies};
  }

  /// Chooses the blocks of one tile. Adds the counts of the tile's list to `kept`, which is in shared memory and
  /// belongs to the CTA.
  __device__ void choose(int tile, bool all, Found& kept) const {
    Candidates candidates = candidates_of(tile, all);
    candidates.coded = shares_budget();
    Cut cut{1, kAllTies};
    if (candidates.count > 0) cut = shares_budget() || is_bounded() ? shared_cut_ : cut_of(tile, candidates);
    if (buffers_.output_lengths != nullptr && candidates.count > 0) count_error(candidates, cut);
    if (tile < sizes_.listed_tiles) {
      const Found found = write_list(tile, candidates, cut, visible_in(tile));
      if (lane() == 0) {
        atomicAdd(&kept.kept, found.kept);
        atomicAdd(&kept.means, found.means);
      }
    } else {
      write_bitmap(tile, candidates, cut);
    }
  }

  /// Returns the mean of the output lengths of the head's tiles.
  __device__ float mean_length() const {
    float sum = 0;
    for (int tile = lane(); tile < sizes_.selection_tiles; tile += 32) sum += length_of(tile);
    return warp_sum(sum) / static_cast<float>(sizes_.selection_tiles);
  }
  /// Adds the predicted error of the means that replace the dropped blocks to the call's counter.
  __device__ void count_error(const Candidates& candidates, Cut cut) const {
    const float rest = rest_of(candidates, cut), length = mean_length();
    const float error = length > 0 ? fminf(rest / length, kMostOfTile) : 0.0F;
    if (lane() == 0) count(p_, kCountPredictedError, __float2ll_rn(error * (1 << kErrorBits)));
  }

  /// Calls f(word, bits) for each word of 32 blocks in [0, words). A bit is 1 if the block is kept.
  template <typename F>
  __device__ void each_word(int words, const Candidates& candidates, Cut cut, const F& f) const {
    constexpr int kAhead = 8;
    int ties = 0;
    for (int first = 0; first < words; first += kAhead) {
      uint32_t keys[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int block = (first + i) * 32 + lane();
        keys[i] = block < candidates.count ? candidates.keys[block] : 0;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i >= words) return;
        const uint32_t key = keys[i], rank = candidates.rank(key);
        bool kept = key == 0 || rank >= cut.threshold;
        if (cut.ties != kAllTies) {
          const bool tie = key != 0 && key != ~0U && rank == cut.threshold;  // a NaN is always kept
          const uint32_t tied = __ballot_sync(~0U, tie);
          kept = kept && !(tie && ties + __popc(tied & before()) >= cut.ties);
          ties += __popc(tied);
        }
        f(first + i, __ballot_sync(~0U, kept));
      }
    }
  }

  /// Returns a mask of the lanes before this one.
  __device__ static uint32_t before() {
    return (1U << lane()) - 1;
  }

  __device__ void write_bitmap(int tile, const Candidates& candidates, Cut cut) const {
    uint32_t* row = buffers_.bitmap + (static_cast<int64_t>(bh_) * sizes_.selection_tiles + tile) * sizes_.map_words;
    each_word(sizes_.map_words, candidates, cut, [&](int word, uint32_t bits) {
      if (lane() == 0) row[word] = bits;
    });
  }

  /// Writes the tile's list and returns its counts. If the tile drops blocks, entries for all records of means follow
  /// the entries of the kept blocks.
  __device__ Found write_list(int tile, const Candidates& candidates, Cut cut, int visible) const {
    __shared__ uint32_t kept_of_tiles[kTiles][kMostMeanKeys / kRecord / 32];  // one bit per block; only with means
    uint32_t* kept = kept_of_tiles[warp()];
    const int64_t at = static_cast<int64_t>(bh_) * sizes_.query_tiles + tile;
    uint32_t* list = buffers_.lists + at * sizes_.list_entries;
    const int groups = ceil_div(min(p_.selection.rows, p_.queries - tile * p_.selection.rows), kRecord);
    int length = 0;
    each_word(ceil_div(visible, 32), candidates, cut, [&](int word, uint32_t bits) {
      const int block = word * 32 + lane(), left = visible - word * 32;
      if (left < 32) bits &= (1U << left) - 1;
      if ((bits >> lane() & 1) != 0) list[length + __popc(bits & before())] = block | whole_for(groups);
      if (with_means_ > 0 && lane() == 0) kept[word] = bits;
      length += __popc(bits);
    });
    const int blocks = length, means = length < visible ? ceil_div(with_means_, kMeanBlocks) : 0;
    __syncwarp();
    for (int index = lane(); index < means; index += 32) {
      const int rest = with_means_ - index * kMeanBlocks;
      const uint32_t dropped = ~(kept[index / 2] >> index % 2 * kMeanBlocks) & 0xFFFF;
      const uint32_t real = rest < kMeanBlocks ? (1U << rest) - 1 : ~0U;
      list[length + index] = mean_entry(index, dropped & real, whole_for(groups));
    }
    length += means;
    if (lane() == 0) {
      if (length == 0) list[0] = 0;  // kernels need at least one entry; no row uses this one
      put_tile(sizes_, buffers_, bh_, tile, {max(length, 1), length > 0 ? 1 : 0, means});
    }
    return {blocks * groups, means * groups};
  }
};

/// Ranks the blocks by mass, and chooses.
template <int D>
class SelectByMass : Chooser<D> {
  using Choice = Chooser<D>;
  using Choice::each_column_tile, Choice::column_of, Choice::forced, Choice::choose_all;
  using Choice::p_, Choice::buffers_, Choice::key_blocks_, Choice::dense, Choice::pooled, Choice::pool, Choice::place;

 public:
  using Choice::Choice;

  __device__ void run() {
    __shared__ PooledQueries<D> queries;
    const bool diverse = pool(queries);
    if (!dense()) score(queries);
    __syncthreads();
    choose_all(dense() || diverse);
  }

 private:
  /// Computes the sort keys (selection_cut.cuh) of the blocks for 16 tiles from the logarithm of their mass, up to a
  /// constant per tile. The sort key of a forced block is 0.
  __device__ void score(const PooledQueries<D>& queries) const {
    const PooledRows<D> rows(queries.rows, PooledQueries<D>::kStride, kTiles);
    each_column_tile(0, key_blocks_, [&](int first) {
      float c[4];
      rows.multiply(pooled(buffers_.k_mean), first, c);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (uint32_t* key = place(first, i)) *key = forced(column_of(first, i)) ? 0 : ordered(c[i] * p_.scale);
    });
  }
};

/// Chooses from the ranks that RankByError computed. If tiles share a budget, find_sub_bin() must have run; if they
/// share a bound, PredictOutputs must have run.
template <int D>
class ChooseByError : Chooser<D> {
  using Choice = Chooser<D>;
  using Choice::dense, Choice::shares_budget, Choice::is_bounded, Choice::length_sum, Choice::choose_all;
  using Choice::p_, Choice::sizes_, Choice::bh_, Choice::first_tile_, Choice::choice_, Choice::warp, Choice::lane;
  using Choice::shared_cut_;

 public:
  using Choice::Choice;

  __device__ void run() {
    if (shares_budget()) shared_cut_ = cut_of_budget();
    if (is_bounded()) shared_cut_ = cut_of_bound();
    choose_all(dense());
  }

 private:
  /// Returns the cut of the shared budget. All threads of the CTA call it together.
  __device__ Cut cut_of_budget() const {
    const Budget& budget = this->budget();
    const BinPlace end = find_bin(budget.sub_bins, budget.place.rest);
    const bool alone = p_.selection.heads != nullptr;
    const int heads = alone ? 1 : all_heads(p_);
    const int head = alone ? 0 : p_.selection.first_head + bh_ % p_.heads;
    const int64_t tiles = static_cast<int64_t>(sizes_.selection_tiles) * heads;
    const int64_t index = static_cast<int64_t>(head) * sizes_.selection_tiles + first_tile_ + warp();
    return {static_cast<uint32_t>(budget.place.bin * kBins + end.bin),
            end.rest == kWholeBin ? kAllTies : ties_of(end.rest, index, tiles)};
  }

  /// Returns the cut that keeps every block whose predicted error is above the bound. All lanes of a warp call it
  /// together.
  __device__ Cut cut_of_bound() const {
    static_assert(LengthSum::kBins == 32);
    const LengthSum& sum = length_sum();
    const float share = static_cast<float>(sum.bins[lane()]) / static_cast<float>(sum.lengths);
    const float mean = warp_sum(ldexpf(share, LengthSum::unit_of(lane())));
    if (isnan(mean)) return {1, kAllTies};  // no length is finite
    return {ordered(logf(choice_.error * mean + kLeastErrorF)) + 1, kAllTies};
  }
};

}  // namespace sparsereel::attention::cuda
