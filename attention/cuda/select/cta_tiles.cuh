// The selection tiles of a CTA, one for each warp: which tiles they are, which keys they see, and the means of their
// queries.
#pragma once

#include <cuda_bf16.h>

#include "attention/cuda/records.h"
#include "attention/cuda/scratch.h"
#include "attention/cuda/select/budget.cuh"
#include "attention/cuda/select/pooled_rows.cuh"
#include "attention/cuda/visible.cuh"
#include "attention/cuda/warp.cuh"
#include "attention/length_sum.h"

namespace sparsereel::attention::cuda {

constexpr int kTiles = kPooledRows;
static_assert(32 * kTiles == kBudgetThreads);
constexpr int kMostCells = 192 / kCell;

/// One row for each tile of the CTA: the mean of the tile's queries. If blocks are ranked by error, the row is
/// something else: the queries of each cell are averaged first, and the row is the mean of the squares of these
/// averages, channel by channel.
template <int D>
struct PooledQueries {
  static constexpr int kStride = D + 8;  // the padding avoids bank conflicts
  alignas(16) __nv_bfloat16 rows[kTiles * kStride];
};

/// Returns the index of the budget or length sum to which the head belongs: its batch entry or, if heads have their own
/// choices, the head itself.
__device__ inline int together(const KernelParams& p, int bh) {
  return p.selection.heads == nullptr ? bh / p.heads : bh;
}

/// kWarps: number of tiles per CTA.
template <int D, int kWarps>
class CtaTiles {
 public:
  /// shared_keys: shared memory for the sort keys (selection_cut.cuh). Not used if Buffers::scores holds them.
  __device__ CtaTiles(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                      uint32_t* shared_keys = nullptr)
      : p_(p),
        sizes_(sizes),
        buffers_(buffers),
        groups_(ceil_div(sizes.selection_tiles, kTiles) * (kTiles / kWarps)),
        bh_(static_cast<int>(blockIdx.x) / groups_),
        first_tile_(static_cast<int>(blockIdx.x) % groups_ * kWarps),
        choice_(p.selection.heads == nullptr ? p.selection.all : p.selection.heads[bh_ % p.heads]),
        count_(key_count(p, bh_ / p.heads)),
        key_blocks_(ceil_div(min(count_, video_part(p.keys, p.text_tokens)), kRecord)),
        with_means_(p.selection.means ? blocks_with_means(count_, video_part(p.keys, p.text_tokens)) : 0),
        keys_(buffers.scores == nullptr ? shared_keys
                                        : reinterpret_cast<uint32_t*>(buffers.scores) +
                                              static_cast<int64_t>(blockIdx.x) * kWarps * sizes.selectable_keys) {}

 protected:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ bool dense() const { return choice_.kind == HeadChoice::Kind::dense; }
  __device__ bool exists(int tile) const { return tile < sizes_.selection_tiles; }
  __device__ bool shares_budget() const { return sizes_.budgets > 0 && choice_.kind == HeadChoice::Kind::topk; }
  __device__ bool is_bounded() const { return sizes_.length_sums > 0 && choice_.kind == HeadChoice::Kind::block_error; }
  __device__ Budget& budget() const { return buffers_.budgets[together(p_, bh_)]; }
  __device__ LengthSum& length_sum() const { return buffers_.length_sums[together(p_, bh_)]; }

  __device__ int queries_of(int tile) const {
    return min(p_.selection.rows, video_part(p_.queries, p_.text_tokens) - tile * p_.selection.rows);
  }
  /// Returns the means of the tile's queries, one for every 16 queries, bf16 [12][D].
  __device__ const uint16_t* cells_of(int tile) const {
    const int64_t first =
        static_cast<int64_t>(bh_) * sizes_.query_blocks * kBlockCells + tile * p_.selection.rows / kCell;
    return buffers_.q_mean + first * D;
  }

  /// Computes the tile's row of `queries` from the means of every 16 queries. Returns true if the queries differ too
  /// much for one mean.
  __device__ bool pool_queries(int tile, PooledQueries<D>& queries) const {
    const int row = warp() * PooledQueries<D>::kStride, total = queries_of(tile);
    const float share = 1.0F / static_cast<float>(total);
    const uint16_t* cells = cells_of(tile);
    float square = 0;
    for (int c = 2 * lane(); c < D; c += 64) {
      float2 mean{}, squares{};
#pragma unroll
      for (int i = 0; i < kMostCells; ++i) {
        if (i * kCell >= total) break;
        const float weight = static_cast<float>(min(kCell, total - i * kCell)) * share;
        const float2 x = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(cells + i * D + c));
        mean = {fmaf(x.x, weight, mean.x), fmaf(x.y, weight, mean.y)};
        squares = {fmaf(x.x * x.x, weight, squares.x), fmaf(x.y * x.y, weight, squares.y)};
      }
      *reinterpret_cast<__nv_bfloat162*>(queries.rows + row + c) =
          __float22bfloat162_rn(p_.selection.by_error ? squares : mean);
      if (buffers_.q_direction == nullptr) continue;
      const float direction[2] = {direction_of(tile, c), direction_of(tile, c + 1)};
      square += direction[0] * direction[0] + direction[1] * direction[1];
    }
    if (buffers_.q_direction == nullptr) return false;
    return warp_sum(square) * share * share < choice_.similarity;
  }

  /// Returns a column of the sum of the tile's queries, each scaled to length 1.
  __device__ float direction_of(int tile, int column) const {
    const int first = tile * p_.selection.rows / kRecord, blocks = ceil_div(queries_of(tile), kRecord);
    float sum = 0;
    for (int i = 0; i < blocks; ++i)
      sum += buffers_.q_direction[(static_cast<int64_t>(bh_) * sizes_.query_blocks + first + i) * D + column];
    return sum;
  }

  /// Returns the number of blocks of video keys that the tile sees.
  __device__ int visible_blocks(int tile) const {
    return min(visible_in(tile), key_blocks_);
  }
  /// Returns the number of key blocks that the tile sees, including blocks of text.
  __device__ int visible_in(int tile) const {
    const int last = tile * p_.selection.rows + queries_of(tile) - 1;
    return ceil_div(visible_keys(p_, count_, last), kRecord);
  }

  /// Returns the index, over all batch entries, of the head of k and v that this head uses.
  __device__ int64_t key_head() const {
    return sizes_.group.of(bh_);
  }

  /// Returns this head's part of a buffer with a row for each key block. of_keys: Buffers::k_mean or k_variance.
  __device__ const uint16_t* pooled(const uint16_t* of_keys) const {
    return of_keys + key_head() * sizes_.pooled_blocks * D;
  }

  /// Returns a reference to the output length of one of the head's tiles.
  __device__ float& length_of(int tile) const {
    return buffers_.output_lengths[static_cast<int64_t>(bh_) * sizes_.selection_tiles + tile];
  }

  __device__ uint32_t* key_of(int row, int block) const {
    return keys_ + row * sizes_.selectable_keys + block;
  }

  const KernelParams& p_;
  const Sizes& sizes_;
  const Buffers& buffers_;
  const int groups_, bh_, first_tile_;
  const HeadChoice choice_;
  const int count_, key_blocks_;
  const int with_means_;  // number of key blocks that have means
  uint32_t* const keys_;
};

}  // namespace sparsereel::attention::cuda
