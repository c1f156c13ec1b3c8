// Computes the share of a tile's softmax that each key block holds, from means of 16 queries. One mean of all queries
// would not do: if the queries attend to different blocks, it would find none of these blocks.
#pragma once

#include <cmath>

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/mma.cuh"
#include "attention/cuda/records.h"
#include "attention/cuda/select/pooled_rows.cuh"

namespace sparsereel::attention::cuda {

/// Computes mass_j = sum_a w_a softmax_j(scale q_a . k_j) over the cells a of one tile, for each key block j. q_a is
/// the mean query of cell a, k_j the mean key of block j, and w_a the cell's share of the tile's queries. Each warp has
/// one tile.
template <int D>
class TileMasses {
 public:
  static_assert(192 / kCell <= kPooledRows);

  /// cells: bf16 [ceil(queries / 16)][D], the mean queries of the tile. keys: the head's mean keys, laid out as
  /// Buffers::k_mean.
  __device__ TileMasses(const uint16_t* cells, int queries, const uint16_t* keys, int blocks, float scale)
      : rows_(reinterpret_cast<const __nv_bfloat16*>(cells), D, ceil_div(queries, kCell)),
        keys_(keys),
        blocks_(blocks),
        to_log2_(scale * kLog2e) {
    float top[2] = {kLowest, kLowest}, sum[2] = {};
    for (int first = 0; first < blocks_; first += kTogether * kPooledKeys) {
      float c[kTogether][4];
      rows_.multiply(keys_, first, last_group(), c);
      if (first + kTogether * kPooledKeys > blocks_) hide_from(blocks_ - first, c);
#pragma unroll
      for (int r = 0; r < 2; ++r) add(c, r, top[r], sum[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int cell = static_cast<int>(threadIdx.x) % 32 / 4 + 8 * r;
      const float real = static_cast<float>(min(max(queries - cell * kCell, 0), kCell));
      shift_[r] = log2_of_row(top[r], sum[r]) - log2f(real / static_cast<float>(queries));  // infinite if real is 0
    }
  }

  /// Calls f(block, mass) for all blocks; in each round of 32 blocks, each lane has one. All lanes of the warp call it
  /// together.
  template <typename F>
  __device__ void each(const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int first = 0; first < blocks_; first += kTogether * kPooledKeys) {
      float c[kTogether][4], mass[2 * kTogether];  // two rows of this lane, two columns of every eight blocks
      rows_.multiply(keys_, first, last_group(), c);
#pragma unroll
      for (int eight = 0; eight < kTogether; ++eight) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          mass[2 * eight + i] = fast_exp2(fmaf(c[eight][i], to_log2_, -shift_[0])) +
                                fast_exp2(fmaf(c[eight][i + 2], to_log2_, -shift_[1]));
      }
      // The eight lanes with equal lane % 4 have the same columns of different rows. They divide the columns among
      // themselves while they add up the rows. Lane 16 a + 8 b + 4 i + l gets column 2 l + i of the (2 a + b)-th eight
      // blocks.
#pragma unroll
      for (int lanes = 16, count = 4; lanes >= 4; lanes /= 2, count /= 2) {
        const bool upper = (lane & lanes) != 0;
#pragma unroll
        for (int i = 0; i < count; ++i) {
          const float away = upper ? mass[i] : mass[i + count];
          mass[i] = (upper ? mass[i + count] : mass[i]) + __shfl_xor_sync(~0U, away, lanes);
        }
      }
      const int block = first + lane / 8 * kPooledKeys + lane % 4 * 2 + lane / 4 % 2;
      if (block < blocks_) f(block, mass[0]);
      __syncwarp();
    }
  }

 private:
  static constexpr float kLowest = -1e30F;
  /// add() raises `top` only if a score exceeds it by more than this, in log2 units. Sums of up to 2^60 fit into fp32.
  static constexpr float kRoom = 60;

  static constexpr int kTogether = 4;  // number of products, of 8 blocks each, that are in flight

  /// Returns the first block of the last group of 8 blocks; the group may be partial.
  __device__ int last_group() const {
    return max(blocks_ - 1, 0) / kPooledKeys * kPooledKeys;
  }

  /// Sets the scores of all columns but the first `real` to -inf.
  __device__ static void hide_from(int real, float (&c)[kTogether][4]) {
#pragma unroll
    for (int eight = 0; eight < kTogether; ++eight) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (eight * kPooledKeys + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2 >= real) c[eight][i] = -INFINITY;
    }
  }

  /// Adds the scores of one of the lane's two rows (r = 0 or 1) to `sum`, a sum of 2^(score - top). A NaN score does
  /// not change the masses of other blocks.
  __device__ void add(const float (&c)[kTogether][4], int r, float& top, float& sum) const {
    float most = c[0][2 * r];
#pragma unroll
    for (int i = 1; i < 2 * kTogether; ++i) most = fmaxf(most, c[i / 2][2 * r + i % 2]);
    most *= to_log2_;
    if (most > top + kRoom) {
      sum *= fast_exp2(top - most);
      top = most;
    }
    float more = 0;
#pragma unroll
    for (int i = 0; i < 2 * kTogether; ++i)
      more += fmaxf(fast_exp2(fmaf(c[i / 2][2 * r + i % 2], to_log2_, -top)), 0.0F);
    sum += more;
  }

  /// Returns log2 of the sum over a whole row, of which four lanes have a part each.
  __device__ static float log2_of_row(float top, float sum) {
    float highest = fmaxf(top, __shfl_xor_sync(~0U, top, 1));
    highest = fmaxf(highest, __shfl_xor_sync(~0U, highest, 2));
    sum *= fast_exp2(top - highest);
    sum += __shfl_xor_sync(~0U, sum, 1);
    sum += __shfl_xor_sync(~0U, sum, 2);
    return highest + log2f(sum);
  }

  const PooledRows<D> rows_;
  const uint16_t* const keys_;
  const int blocks_;
  const float to_log2_;
  float shift_[2];
};

}  // namespace sparsereel::attention::cuda
