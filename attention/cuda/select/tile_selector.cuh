// What a warp does for one selection tile, and a CTA for 16 of them: pool, rank, choose, write lists. See select.cu.
#pragma once

#include <cuda_fp16.h>

#include <cfloat>

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/kernels.h"
#include "attention/cuda/select/budget.cuh"
#include "attention/cuda/select/cta_tiles.cuh"
#include "attention/cuda/select/tile_masses.cuh"
#include "attention/cuda/tile_order.cuh"
#include "attention/cuda/visible.cuh"
#include "attention/length_sum.h"

namespace sparsereel::attention::cuda {

constexpr float kLeastErrorF = kLeastError;
constexpr float kMostOfTile = 1 << 20;  // that is counted of a tile

template <int D, int kWarps = kTiles>
class TileSelector : CtaTiles<D, kWarps> {
  using Tiles = CtaTiles<D, kWarps>;
  using Tiles::key_blocks_, Tiles::with_means_, Tiles::warp, Tiles::lane, Tiles::dense, Tiles::exists;
  using Tiles::p_, Tiles::sizes_, Tiles::buffers_, Tiles::bh_, Tiles::first_tile_, Tiles::choice_, Tiles::count_;
  using Tiles::pool_queries, Tiles::visible_blocks, Tiles::visible_in, Tiles::key_head, Tiles::pooled, Tiles::key_of;
  using Tiles::shares_budget, Tiles::is_bounded, Tiles::budget, Tiles::length_sum, Tiles::queries_of, Tiles::cells_of;

 public:
  __device__ TileSelector(const Problem& p, const Sizes& sizes, const Buffers& buffers, uint32_t* shared_keys)
      : Tiles(p, sizes, buffers, shared_keys) {}

  /// The masses of the blocks that a tile sees, a warp a tile, in place of their keys.
  __device__ void find_masses() const {
    const int tile = first_tile_ + warp();
    if (dense() || !exists(tile)) return;
    const int blocks = visible_blocks(tile);
    if (blocks == 0) return;
    Masses(cells_of(tile), queries_of(tile), pooled(buffers_.k_mean), blocks, p_.scale)
        .each([&](int block, float mass) { *key_of(warp(), block) = __float_as_uint(mass); });
  }

  /// Lengths of the outputs of the CTA's tiles, from masses: of all where errors are predicted, else of the first. All
  /// its threads work on one tile.
  __device__ void predict() const {
    const bool all = buffers_.output_lengths != nullptr;
    if (dense() || !(all || is_bounded())) return;
    const int end = min(first_tile_ + (all ? kWarps : 1), sizes_.selection_tiles);
    for (int tile = first_tile_; tile < end; ++tile) {
      const float length = length_of_output(tile);
      if (threadIdx.x > 0) continue;
      if (all) length_of(tile) = length;
      if (is_bounded() && tile % kLengthTiles == 0 && isfinite(length)) add_length(length);
    }
  }

  /// Ranks the blocks by mass and chooses.
  __device__ void select_by_mass() {
    __shared__ PooledQueries<D> queries;
    const bool diverse = pool(queries);
    if (!dense()) score(queries);
    __syncthreads();
    choose_all(dense() || diverse);
  }

  /// Ranks the blocks by error, from masses, and adds them to their budget.
  __device__ void rank_by_error() const {
    __shared__ PooledQueries<D> queries;
    __shared__ BinCounts bins;
    __shared__ RankedTile tiles[kTiles];
    if (dense()) return;
    const bool diverse = pool(queries);
    const int tile = first_tile_ + warp();
    if (lane() == 0) tiles[warp()] = {exists(tile) ? candidates_of(tile, diverse).count : 0, 0};
    bins.clear();
    rank(queries, tiles, bins);
    __syncthreads();
    if (!shares_budget() && !is_bounded()) return;
    if (lane() == 0 && exists(tile)) keep_best(tile, Best(tiles[warp()].best), bins);
    if (shares_budget()) bins.add_to(budget().bins);
  }

  /// Chooses from ranked blocks, within the budget that others share once find_sub_bin() has run for all, or by the
  /// lengths of outputs once predict() has.
  __device__ void choose_by_error() {
    if (shares_budget()) shared_cut_ = cut_of_budget();
    if (is_bounded()) shared_cut_ = cut_of_bound();
    choose_all(dense());
  }

 private:
  using Masses = TileMasses<D>;

  /// Pools the queries of the CTA's tiles; returns whether those of this warp's are too diverse for one mean.
  __device__ bool pool(PooledQueries<D>& queries) const {
    const int tile = first_tile_ + warp();
    const bool diverse = exists(tile) && pool_queries(tile, queries);
    __syncthreads();
    return diverse;
  }

  /// Chooses for the CTA's tiles, a warp each, and counts what their lists hold. all: whether this warp's tile keeps
  /// all blocks.
  __device__ void choose_all(bool all) {
    __shared__ Found kept;
    if (threadIdx.x == 0) kept = {};
    __syncthreads();
    const int tile = first_tile_ + warp();
    if (exists(tile)) choose(tile, all, kept);
    __syncthreads();
    if (threadIdx.x == 0) {  // one for all its tiles: they would queue at these addresses
      count(p_, kCountKept, kept.kept);
      count(p_, kCountMeans, kept.means);
    }
  }

  /// Calls f(first) for every 8 key blocks of this warp in [begin, end).
  template <typename F>
  __device__ void each_column_tile(int begin, int end, const F& f) const {
#pragma unroll 2
    for (int first = begin + warp() * kPooledKeys; first < end; first += kTiles * kPooledKeys) f(first);
  }

  /// keys_[tile][block] of a lane's i-th element of a product; null past the last block.
  __device__ uint32_t* place(int first, int i) const {
    const int column = column_of(first, i);
    return column < key_blocks_ ? key_of(lane() / 4 + i / 2 * 8, column) : nullptr;
  }
  __device__ static int column_of(int first, int i) {
    return first + lane() % 4 * 2 + i % 2;
  }

  /// Keys of the 16 tiles from the logarithm of the mass, but for what all masses of a tile have in common; 0 where a
  /// block is forced.
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

  /// Keys of the 16 tiles from the logarithm of what a mean in place of a block errs by: its mass times the deviation
  /// of the scores times that of V, and half the scores' variance times how far V's mean is off.
  __device__ void rank(const PooledQueries<D>& queries, RankedTile (&tiles)[kTiles], BinCounts& bins) const {
    const PooledRows<D> rows(queries.rows, PooledQueries<D>::kStride, kTiles);
    const ValueSpread* spreads = buffers_.v_spread + key_head() * sizes_.key_blocks;
    const float square_scale = p_.scale * p_.scale;
    const int candidates[2] = {tiles[lane() / 4].candidates, tiles[lane() / 4 + 8].candidates};
    Best best[2];
    each_column_tile(0, sizes_.selectable_keys, [&](int first) {
      uint32_t* at[4];
      float mass[4], variance[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        at[i] = key_of(lane() / 4 + i / 2 * 8, column_of(first, i));
        mass[i] = column_of(first, i) < candidates[i / 2] ? __uint_as_float(*at[i]) : 0.0F;
      }
      rows.multiply(pooled(buffers_.k_variance), first, variance);
      uint32_t keys[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int block = column_of(first, i);
        uint32_t key = 0;
        if (block < candidates[i / 2] && !forced(block)) {
          const ValueSpread spread = spreads[block];
          const float square = fmaxf(variance[i], 0.0F) * square_scale;
          const float error = __logf(fast_sqrt(square) * spread.deviation + 0.5F * square * spread.far + kLeastErrorF);
          key = ordered(__logf(mass[i] < FLT_MIN ? FLT_MIN : mass[i]) + error);
          best[i / 2].see(key, block);
        }
        if (block < sizes_.selectable_keys) *at[i] = key;
        keys[i] = key;
      }
      if (!shares_budget()) return;
#pragma unroll
      for (const uint32_t key : keys) bins.add(budget_code(key) / kBins, key != 0);
    });
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (best[r].key != 0) atomicMax(&tiles[lane() / 4 + 8 * r].best, best[r].packed());
  }

  /// Means stand for whole blocks only.
  __device__ bool forced(int block) const {
    if (p_.selection.means && block >= with_means_) return true;
    return buffers_.k_similarity != nullptr &&
           buffers_.k_similarity[key_head() * sizes_.key_blocks + block] < choice_.similarity;
  }

  /// A tile's keys, 0 where a block is forced; none where it keeps all.
  __device__ Candidates candidates_of(int tile, bool all) const {
    const int visible = visible_in(tile);
    // Under a causal mask the blocks on the diagonal are kept, so that no query loses its own key.
    const int diagonal = p_.causal ? max(0, visible_keys(p_, count_, tile * p_.selection.rows) - 1) / kRecord : visible;
    return {key_of(warp(), 0), all ? 0 : min(min(visible, diagonal), key_blocks_)};
  }

  __device__ int wanted_of(int tile) const {
    return max(1, static_cast<int>(floor(choice_.topk * visible_in(tile))));
  }

  /// Keeps the tile's best candidate whatever the budget, so that the softmax's maxima settle before means come: each
  /// that raises them costs time. One lane calls it.
  __device__ void keep_best(int tile, const Best& best, BinCounts& bins) const {
    if (best.key == 0) return;
    *key_of(warp(), best.block()) = 0;
    if (!shares_budget()) return;
    atomicSub(&bins.count[budget_code(best.key) / kBins], 1);
    atomicAdd(&budget().wanted, wanted_of(tile) - 1);
  }

  /// All threads of the CTA call this together.
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

  /// What errs by more than the bound. All lanes of a warp call this together.
  __device__ Cut cut_of_bound() const {
    static_assert(LengthSum::kBins == 32);
    const LengthSum& sum = length_sum();
    const float share = static_cast<float>(sum.bins[lane()]) / static_cast<float>(sum.lengths);
    const float mean = warp_sum(ldexpf(share, LengthSum::unit_of(lane())));
    if (isnan(mean)) return {1, kAllTies};  // no length is finite
    return {ordered(logf(choice_.error * mean + kLeastErrorF)) + 1, kAllTies};
  }

  /// What a tile that chooses for itself keeps.
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

  /// kept: of the CTA, in shared memory; grows by what the list holds.
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

  /// The mean over the head's tiles.
  __device__ float mean_length() const {
    float sum = 0;
    for (int tile = lane(); tile < sizes_.selection_tiles; tile += 32) sum += length_of(tile);
    return warp_sum(sum) / static_cast<float>(sizes_.selection_tiles);
  }
  __device__ float& length_of(int tile) const {
    return buffers_.output_lengths[static_cast<int64_t>(bh_) * sizes_.selection_tiles + tile];
  }

  /// What the means of the blocks that are not kept are predicted to err by.
  __device__ void count_error(const Candidates& candidates, Cut cut) const {
    const float rest = rest_of(candidates, cut), length = mean_length();
    const float error = length > 0 ? fminf(rest / length, kMostOfTile) : 0.0F;
    if (lane() == 0) count(p_, kCountPredictedError, __float2ll_rn(error * (1 << kErrorBits)));
  }

  /// From the masses of all blocks that the tile sees, of which each warp takes every kWarps-th. All threads of the CTA
  /// call this together; the first warp has the result.
  __device__ float length_of_output(int tile) const {
    __shared__ float outputs[kWarps][D];
    const int blocks = min(visible_blocks(tile), with_means_);  // a ragged last block is always kept, and has no mean
    const int64_t head = key_head();
    const uint16_t* means = buffers_.v_block_mean + head * sizes_.key_blocks * D + 2 * lane();
    float2 sums[D / 64] = {};
#pragma unroll 4
    for (int j = warp(); j < blocks; j += kWarps) {
      const float mass = __uint_as_float(*key_of(tile - first_tile_, j));
#pragma unroll
      for (int c = 0; c < D / 64; ++c) {
        const float2 mean =
            __half22float2(*reinterpret_cast<const __half2*>(means + static_cast<int64_t>(j) * D + 64 * c));
        sums[c] = {fmaf(mass, mean.x, sums[c].x), fmaf(mass, mean.y, sums[c].y)};
      }
    }
#pragma unroll
    for (int c = 0; c < D / 64; ++c) *reinterpret_cast<float2*>(&outputs[warp()][64 * c + 2 * lane()]) = sums[c];
    __syncthreads();
    float square = 0;
    if (warp() == 0) {
#pragma unroll
      for (int channel = lane(); channel < D; channel += 32) {
        float output = 0;
        for (int w = 0; w < kWarps; ++w) output += outputs[w][channel];
        output = output * buffers_.v_scale[head * D + channel] + buffers_.v_centre[head * D + channel];
        square = fmaf(output, output, square);
      }
      square = warp_sum(square);
    }
    __syncthreads();  // before the next tile's
    return sqrtf(square);
  }

  __device__ void add_length(float length) const {
    const uint32_t bits = __float_as_uint(length);
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(&length_sum().bins[LengthSum::bin_of(bits)]),
              LengthSum::units_of(bits));
    atomicAdd(reinterpret_cast<unsigned long long*>(&length_sum().lengths), 1);
  }

  /// f(word, which of its 32 blocks are kept), for the blocks [0, 32 * words).
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
          const bool tie = key != 0 && key != ~0U && rank == cut.threshold;  // a NaN is kept in any case
          const uint32_t tied = __ballot_sync(~0U, tie);
          kept = kept && !(tie && ties + __popc(tied & before()) >= cut.ties);
          ties += __popc(tied);
        }
        f(first + i, __ballot_sync(~0U, kept));
      }
    }
  }

  /// The lower lanes.
  __device__ static uint32_t before() {
    return (1U << lane()) - 1;
  }

  __device__ void write_bitmap(int tile, const Candidates& candidates, Cut cut) const {
    uint32_t* row = buffers_.bitmap + (static_cast<int64_t>(bh_) * sizes_.selection_tiles + tile) * sizes_.map_words;
    each_word(sizes_.map_words, candidates, cut, [&](int word, uint32_t bits) {
      if (lane() == 0) row[word] = bits;
    });
  }

  /// Returns what is in it. Where some blocks are not, all records of means come last.
  __device__ Found write_list(int tile, const Candidates& candidates, Cut cut, int visible) const {
    __shared__ uint32_t kept_of_tiles[kTiles][kMostMeanKeys / kRecord / 32];  // a bit a block; only with means
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
      if (length == 0) list[0] = 0;  // kernels rely on one entry; this one covers no row
      put_tile(sizes_, buffers_, bh_, tile, {max(length, 1), length > 0 ? 1 : 0, means});
    }
    return {blocks * groups, means * groups};
  }

  Cut shared_cut_{1, kAllTies};  // of all tiles that choose together
};

}  // namespace sparsereel::attention::cuda
