// Ranks the key blocks for a CTA's 16 tiles, by mass or by the error of their means. select.cu explains the steps.
#pragma once

#include <cfloat>

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/select/cta_tiles.cuh"
#include "attention/cuda/select/pooled_rows.cuh"

namespace sparsereel::attention::cuda {

constexpr float kLeastErrorF = kLeastError;

/// The common part of ranking and choosing. The CTA has 16 tiles, one for each warp.
template <int D>
class RankedTiles : protected CtaTiles<D, kTiles> {
  using Tiles = CtaTiles<D, kTiles>;

 public:
  using Tiles::Tiles;

 protected:
  using Tiles::key_blocks_, Tiles::with_means_, Tiles::warp, Tiles::lane, Tiles::exists, Tiles::pool_queries;
  using Tiles::p_, Tiles::buffers_, Tiles::sizes_, Tiles::first_tile_, Tiles::choice_, Tiles::count_;
  using Tiles::visible_in, Tiles::key_head, Tiles::key_of;

  /// Computes the row of `queries` for each tile of the CTA. Returns true if the queries of this warp's tile differ too
  /// much for one mean.
  __device__ bool pool(PooledQueries<D>& queries) const {
    const int tile = first_tile_ + warp();
    const bool diverse = exists(tile) && pool_queries(tile, queries);
    __syncthreads();
    return diverse;
  }

  /// Divides the key blocks [begin, end) among the warps in groups of 8. Calls f(first) with the first block of each
  /// group of this warp.
  template <typename F>
  __device__ void each_column_tile(int begin, int end, const F& f) const {
#pragma unroll 2
    for (int first = begin + warp() * kPooledKeys; first < end; first += kTiles * kPooledKeys) f(first);
  }

  /// Returns the address of the sort key (selection_cut.cuh) for a lane's i-th element of a product; null past the last
  /// block.
  __device__ uint32_t* place(int first, int i) const {
    const int column = column_of(first, i);
    return column < key_blocks_ ? key_of(lane() / 4 + i / 2 * 8, column) : nullptr;
  }
  __device__ static int column_of(int first, int i) {
    return first + lane() % 4 * 2 + i % 2;
  }

  /// Returns true if the block is always kept because it has no means (it has fewer than 64 keys), or because its keys
  /// differ too much.
  __device__ bool forced(int block) const {
    if (p_.selection.means && block >= with_means_) return true;
    return buffers_.k_similarity != nullptr &&
           buffers_.k_similarity[key_head() * sizes_.key_blocks + block] < choice_.similarity;
  }

  /// Returns a tile's candidates. Forced blocks are among them with the sort key 0. If the tile keeps all blocks, there
  /// are no candidates.
  __device__ Candidates candidates_of(int tile, bool all) const {
    const int visible = visible_in(tile);
    // Under a causal mask the blocks on the diagonal are kept, so that no query loses its own key.
    const int diagonal = p_.causal ? max(0, visible_keys(p_, count_, tile * p_.selection.rows) - 1) / kRecord : visible;
    return {key_of(warp(), 0), all ? 0 : min(min(visible, diagonal), key_blocks_)};
  }

  __device__ int wanted_of(int tile) const {
    return max(1, static_cast<int>(floor(choice_.topk * visible_in(tile))));
  }
};

/// Ranks blocks by error, starting from their masses. If tiles share a budget, counts the candidates in its histogram.
template <int D>
class RankByError : RankedTiles<D> {
  using Ranked = RankedTiles<D>;
  using Ranked::candidates_of, Ranked::wanted_of;
  using Ranked::exists, Ranked::shares_budget, Ranked::is_bounded, Ranked::budget, Ranked::key_head, Ranked::pooled;
  using Ranked::key_of, Ranked::pool, Ranked::each_column_tile, Ranked::column_of, Ranked::forced;
  using Ranked::p_, Ranked::sizes_, Ranked::buffers_, Ranked::first_tile_, Ranked::warp, Ranked::lane, Ranked::dense;

 public:
  using Ranked::Ranked;

  __device__ void run() const {
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

 private:
  /// Computes the sort keys for 16 tiles from the logarithm of the error that means cause in place of a block: mass *
  /// (deviation of scores * deviation of V + variance of scores / 2 * distance of V's mean).
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

  /// Keeps the tile's best candidate, whatever the budget is. In a list, blocks come before means, so the maxima of the
  /// softmax then rise early. A rise later on would cost time, because the outputs so far must be rescaled. One lane
  /// calls it.
  __device__ void keep_best(int tile, const Best& best, BinCounts& bins) const {
    if (best.key == 0) return;
    *key_of(warp(), best.block()) = 0;
    if (!shares_budget()) return;
    atomicSub(&bins.count[budget_code(best.key) / kBins], 1);
    atomicAdd(&budget().wanted, wanted_of(tile) - 1);
  }
};

}  // namespace sparsereel::attention::cuda
