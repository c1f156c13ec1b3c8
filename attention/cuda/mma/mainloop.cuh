// The attention kernel with mma.sync: int8 Q.K, and P.V in int8 (ada.cu) or fp16 (ampere.cu). It runs over the lists of
// key blocks.
//
// A CTA owns a tile of 128 queries. The key blocks of its list pass through a ring of stages in shared memory, which
// cp.async fills. Each warp keeps its own query rows in registers (or in shared memory if kSharedQueries) and
// multiplies them with whole blocks of 64 keys.
#pragma once

#include "attention/cuda/mma/shape.cuh"
#include "attention/cuda/mma/weights.cuh"
#include "attention/cuda/output_mma.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {

template <Kernel kKernel, int D>
class MmaTile {
  using Shape = MmaShape<kKernel, D>;
  using Stage = typename Shape::Stage;
  using Plan = typename Shape::SharedMemoryPlan;
  static constexpr int kRowTiles = Shape::kRowTiles;
  static constexpr int kKeySteps = D / 32;                  // number of steps of Q.K, with 32 columns each
  static constexpr int kValueSteps = Shape::kInt8 ? 2 : 4;  // number of steps of P.V, with 32 or 16 keys each
  static constexpr float kNeverSkip = 32;                   // with this pv_threshold or a larger one, no P.V is skipped
  using Scores = RowTileScores[kRowTiles];
  using RowPairs = float[kRowTiles][2];  // a number for row g and one for row g + 8 of each row tile
  using Weights = uint32_t[kRowTiles][kValueSteps][4];

 public:
  __device__ MmaTile(const KernelParams& p, const Sizes& sizes, const Buffers& buffers, Plan& plan, int bh, int tile)
      : p_(p),
        sizes_(sizes),
        buffers_(buffers),
        plan_(plan),
        bh_(bh),
        first_record_(sizes.group.of(bh) * sizes.key_records),
        lane_(static_cast<int>(threadIdx.x % 32)),  // computed with unsigned numbers, which saves registers
        group_(static_cast<int>(threadIdx.x / Shape::kGroupThreads)),
        first_row_(tile * Shape::kRows + static_cast<int>(threadIdx.x / 32) * 16 * kRowTiles),
        list_(buffers.lists + (static_cast<int64_t>(bh) * sizes.query_tiles + tile) * sizes.list_entries),
        length_(buffers.tile_lists[static_cast<int64_t>(bh) * sizes.query_tiles + tile].length),
        keys_(key_count(p, bh / p.heads)) {
    load_queries();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) max_[r][0] = max_[r][1] = -INFINITY;
    if (p.selection.skips_pv) start_skipping();
  }

  __device__ void run() {
#pragma unroll
    for (int i = 0; i < Shape::kStages - 1; ++i) load_block(i);
    int stage = 0;
    for (int i = 0; i < length_; ++i) {
      const uint32_t entry = list_[i];
      wait_copies<Shape::kStages - 2>();
      __syncthreads();  // now all threads may read block i, and the stage of block i - 1 is free
      load_block(i + Shape::kStages - 1);
      const Cover cover = entry_cover(entry, group_);
      if (cover != Cover::none)
        attend(plan_.stages[stage], entry, cover, i == last_);
      else if (skips())
        group_votes(false);
      stage = after(stage);
    }
    if (threadIdx.x % Shape::kGroupThreads == 0) count(p_, kCountSkippedPv, skipped_);
    finish();
  }

 private:
  /// Returns the index, among the head's queries, of row g (half 0) or g + 8 (half 1) of a row tile.
  __device__ int query(int row_tile, int half) const {
    return first_row_ + 16 * row_tile + 8 * half + lane_ / 4;
  }

  /// Loads the queries into registers or, if kSharedQueries, starts to copy them to shared memory. These copies belong
  /// to the same group as those of the first block.
  __device__ void load_queries() {
    if constexpr (Shape::kSharedQueries) {
      const int64_t first =
          static_cast<int64_t>(bh_) * sizes_.query_blocks * kRecord + first_row_ / Shape::kRows * Shape::kRows;
      copy<Shape::kRows * D>(plan_.q, buffers_.q + first * D);
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = query(r, half);
        const int64_t record = static_cast<int64_t>(bh_) * sizes_.query_blocks + row / kRecord;
        q_scale_[r][half] = buffers_.q_scale[record * kRecord + row % kRecord];
        if constexpr (Shape::kSharedQueries) continue;
        const uint8_t* q = buffers_.q + record * kRecord * D;
#pragma unroll
        for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
          for (int part = 0; part < 2; ++part)
            q_[r][step][2 * part + half] = *reinterpret_cast<const uint32_t*>(
                q + record_offset<D>(row % kRecord, step * 32 + part * 16 + lane_ % 4 * 4));
        }
      }
    }
  }

  /// Loads the columns of one step of Q.K for the warp's 16 query rows from shared memory.
  __device__ void load_shared_queries(int step) {
    const uint8_t* rows = plan_.q + first_row_ % Shape::kRows * D;
    load_matrices(q_[0][0], shared_address(rows) + record_offset<D>(lane_ % 16, step * 32 + lane_ / 16 * 16));
  }

  __device__ void start_skipping() {
    const HeadChoice* heads = p_.selection.heads;
    pv_threshold_ = heads == nullptr ? p_.selection.all.pv_threshold : heads[bh_ % p_.heads].pv_threshold;
    last_ = length_ - 1;
    while (last_ >= 0 && entry_cover(list_[last_], group_) == Cover::none) --last_;
  }

  /// Starts the copy of the list's i-th block into its stage. Past the end of the list, only closes an empty group of
  /// copies, so that wait_copies() still counts the right number of groups in flight.
  __device__ void load_block(int i) {
    if (i < length_) {
      Stage& stage = plan_.stages[next_stage_];
      const int64_t record = first_record_ + entry_record(list_[i], sizes_.key_blocks);
      copy<Shape::kKeyBytes>(stage.k, buffers_.k + record * Shape::kKeyBytes);
      copy<Shape::kValueBytes>(stage.v, buffers_.v + record * Shape::kValueBytes);
      copy<kKeyGroups * sizeof(float)>(stage.k_scale, buffers_.k_scale + record * kKeyGroups);
    }
    next_stage_ = after(next_stage_);
    commit_copies();
  }

  __device__ static int after(int stage) {
    return stage == Shape::kStages - 1 ? 0 : stage + 1;
  }

  template <int kBytes>
  __device__ static void copy(void* to, const void* from) {
    const unsigned mine = threadIdx.x * 16;
    const uint32_t address = shared_address(to) + mine;
    const uint8_t* source = static_cast<const uint8_t*>(from) + mine;
#pragma unroll
    for (int first = 0; first < kBytes; first += 16 * Shape::kThreads)
      if (first + 16 * Shape::kThreads <= kBytes || first + static_cast<int>(mine) < kBytes)
        copy_async(address + first, source + first);
  }

  /// Attends to one entry of the list, which is a block of keys or the means of 16 blocks, for the warp's rows.
  __device__ void attend(const Stage& stage, uint32_t entry, Cover cover, bool last) {
    Scores s;
    multiply_keys(stage, s);
    const float key_scale = stage.k_scale[lane_ % 4];  // columns 2 t and 2 t + 1 of every 8 keys share it
    RowPairs scale, lane_max, block_max;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      scale[r][0] = q_scale_[r][0] * key_scale;
      scale[r][1] = q_scale_[r][1] * key_scale;
    }
    // Padding repeats the last key of the batch entry. It must be masked, because it would otherwise be added to the
    // rows' sums. It could also raise the maxima, because it may be rounded with the scale of another group of keys.
    const bool means = is_mean(entry);
    const float weight = means ? kCellLog2 : 0.0F;  // log2 of the number of keys for which a key of this entry counts
    if (means) {
      mask_means(entry, s);
    } else if (const int block = entry_block(entry); cover == Cover::causal || (block + 1) * kRecord > keys_) {
      mask(block, s);
    }
    find_maxima(s, scale, weight, lane_max, block_max);
    if (skips() && !rises(block_max) && !last && !means) {
      ++skipped_;
      return;
    }
    RowPairs alpha;
    raise_maxima(block_max, alpha);
    Weights weights;
    if constexpr (Shape::kInt8) {
      RowPairs factor;
      weigh_int8(s, scale, weight, lane_max, block_max, alpha, weights, factor);
      rescale(alpha);
      if (kRowTiles > 1) __syncwarp();  // without this, ptxas loads V before the scores' registers are free, and spills
      add_int8_values(stage, weights, factor);
    } else {
      weigh_half(s, scale, weight, alpha, weights);
      if (kRowTiles > 1) __syncwarp();
      add_half_values(stage, weights, alpha);
    }
  }

  /// Computes s = Q K + kMagicBits: the bits of the float kMagic + Q K (weights.cuh).
  __device__ void multiply_keys(const Stage& stage, Scores& s) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[r][n][i] = kMagicBits;
    // One load_matrices() loads keys 0 to 7 with two chunks of 16 columns, and keys 8 to 15 with the same chunks.
    const int key = lane_ / 16 * 8 + lane_ % 8, column = lane_ / 8 % 2 * 16;
    const uint32_t k = shared_address(stage.k);
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      const uint32_t address = k + record_offset<D>(key, step * 32 + column);
      if constexpr (Shape::kSharedQueries) load_shared_queries(step);
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        uint32_t b[4];
        load_matrices(b, address + n * 8 * D);  // the swizzle repeats every 8 rows
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          const auto& q = q_[r][Shape::kSharedQueries ? 0 : step];
          multiply_int8(s[r][n], q, b[0], b[1]);
          multiply_int8(s[r][n + 1], q, b[2], b[3]);
        }
      }
    }
  }

  /// Sets the scores of keys that a query does not see to -inf.
  __device__ void mask(int block, Scores& s) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int left = visible_keys(p_, keys_, query(r, i / 2)) - block * kRecord - lane_ % 4 * 2 - i % 2;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n)
          if (n * 8 >= left) s[r][n][i] = __float_as_int(-INFINITY);
      }
  }

  /// Sets scores to -inf if their means belong to blocks that are not dropped.
  __device__ void mask_means(uint32_t entry, Scores& s) const {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      if ((entry >> (n / 2 * 4 + lane_ % 4) & 1) != 0) continue;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[r][n][i] = __float_as_int(-INFINITY);
    }
  }

  /// Computes the largest score of each row in log2 units (block_max), and the largest score among this lane's, as it
  /// is in s (lane_max). The scale is positive, so scores can be compared before they are scaled.
  __device__ static void find_maxima(const Scores& s, const RowPairs& scale, float weight, RowPairs& lane_max,
                                     RowPairs& block_max) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        lane_max[r][half] = largest_score(s[r], half);
        float most = fmaf(lane_max[r][half] - kMagic, scale[r][half], weight);
        most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
        block_max[r][half] = fmaxf(most, __shfl_xor_sync(~0U, most, 2));
      }
  }

  /// Returns true if a score of any of the group's 64 rows is less than the P.V threshold below the row's maximum. The
  /// group's threads call it together.
  __device__ bool rises(const RowPairs& block_max) const {
    bool rise = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        rise = rise || (query(r, half) < p_.queries && block_max[r][half] + pv_threshold_ > max_[r][half]);
    return group_votes(rise);
  }

  __device__ bool skips() const {
    return pv_threshold_ < kNeverSkip;
  }

  /// Returns true if `predicate` is true in any thread of the group. Every group must call this equally often, even for
  /// blocks that it does not use: otherwise racecheck does not recognize the order that __syncthreads() guarantees.
  __device__ bool group_votes(bool predicate) const {
    return any_of_group(kVotes + group_, Shape::kGroupThreads, predicate);
  }

  /// Raises the maximum of each row to the block's maximum, if that is larger. Sets alpha to the factor by which the
  /// row's sums so far must be multiplied.
  __device__ void raise_maxima(const RowPairs& block_max, RowPairs& alpha) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float before = max_[r][half];
        max_[r][half] = fmaxf(before, block_max[r][half]);
        alpha[r][half] = fast_exp2(before - finite_max(r, half));
      }
  }

  /// Returns the maximum of a row, or 0 if the row has seen no key so far. The scores of such a row are all -inf, so
  /// its weights become 0.
  __device__ float finite_max(int r, int half) const {
    return max_[r][half] == -INFINITY ? 0.0F : max_[r][half];
  }

  /// Computes P = 2^(scale s - max + log2_weight) in fp16. Multiplies the rows' sums by alpha, and then adds P to them.
  __device__ void weigh_half(const Scores& s, const RowPairs& scale, float log2_weight, const RowPairs& alpha,
                             Weights& weights) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = half_weights(s[r], half, scale[r][half], log2_weight - finite_max(r, half), weights[r]);
        sum_[r][half] = fmaf(sum_[r][half], alpha[r][half], sum);
      }
  }

  /// Computes P = 255 * 2^(scale s - the block's maximum) in uint8. Sets `factor` to the weight of a P of 1, relative
  /// to the row's maximum. Replaces the rows' sums by alpha * sum + factor * P. lane_max: see find_maxima().
  __device__ void weigh_int8(const Scores& s, const RowPairs& scale, float log2_weight, const RowPairs& lane_max,
                             const RowPairs& block_max, const RowPairs& alpha, Weights& weights, RowPairs& factor) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float most = lane_max[r][half], top = most == -INFINITY ? kMagic : most;
        const float below = fmaf(most - kMagic, scale[r][half], log2_weight) - block_max[r][half];
        // fminf() also replaces the NaN of a row without keys.
        const float sum = int8_weights(s[r], half, scale[r][half], top, fminf(below, 0), weights[r]);
        factor[r][half] = fast_exp2(block_max[r][half] - finite_max(r, half) - kMostWeightLog2);
        // A uint8 cannot be NaN, but the row's sum can: a scale that is not finite makes it NaN.
        const float nan = scale[r][half] * 0.0F;
        sum_[r][half] = fmaf(sum_[r][half], alpha[r][half], fmaf(sum, factor[r][half], nan));
      }
  }

  /// Multiplies the outputs by alpha, unless all factors are 1, as in most steps.
  __device__ void rescale(const RowPairs& alpha) {
    bool rose = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) rose = rose || alpha[r][0] != 1 || alpha[r][1] != 1;
    if (!__any_sync(~0U, rose)) return;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int n = 0; n < Shape::kChannelTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[r][n][i] *= alpha[r][i / 2];
  }

  /// Adds P V to the outputs. A sum of 64 products is an exact integer of up to 22 bits. It is multiplied by the factor
  /// of the row and the scale of the channel.
  __device__ void add_int8_values(const Stage& stage, const Weights& weights, const RowPairs& factor) {
    // One load_matrices() loads 8 channels with all four chunks of 16 keys.
    const uint32_t address = shared_address(stage.v) + value_offset(lane_ % 8, lane_ / 8 * 16);
    const auto* scales = reinterpret_cast<const float2*>(stage.v + D * kRecord) + lane_ % 4;
    const int32_t start[4] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits};
#pragma unroll
    for (int n = 0; n < Shape::kChannelTiles; ++n) {
      uint32_t b[4];
      load_matrices(b, address + n * 8 * kRecord);
      const float2 scale = scales[n * 4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        int32_t sum[4];
        multiply_weights(sum, weights[r][0], b[0], b[1], start);
        multiply_weights(sum, weights[r][1], b[2], b[3], sum);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float unit = factor[r][i / 2] * (i % 2 == 0 ? scale.x : scale.y);
          out_[r][n][i] = fmaf(without_magic(sum[i]), unit, out_[r][n][i]);
        }
      }
    }
  }

  /// Adds a block's sum to the running sum in fp32. The tensor core computed the block's sum from zero, because it
  /// would cut low bits off if it added to the running sum.
  __device__ static void join(float (&sum)[4], const float (&alpha)[2], const float (&block_sum)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = fmaf(sum[i], alpha[i / 2], block_sum[i]);
  }

  __device__ void add_half_values(const Stage& stage, const Weights& weights, const RowPairs& alpha) {
    // One load_matrices_transposed() loads 16 keys with 8 channels, and the same keys with the next 8 channels.
    const int key = lane_ % 16, column = lane_ / 16 * 16;
    const uint32_t v = shared_address(stage.v);
#pragma unroll
    for (int n = 0; n < Shape::kChannelTiles; n += 2) {
      const uint32_t address = v + half_value_offset<D>(key, n * 16 + column);
      float block_sum[kRowTiles][2][4] = {};
#pragma unroll
      for (int step = 0; step < kValueSteps; ++step) {
        uint32_t b[4];
        load_matrices_transposed(b, address + step * 16 * 2 * D);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          multiply_half(block_sum[r][0], weights[r][step], b[0], b[1]);
          multiply_half(block_sum[r][1], weights[r][step], b[2], b[3]);
        }
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        join(out_[r][n], alpha[r], block_sum[r][0]);
        join(out_[r][n + 1], alpha[r], block_sum[r][1]);
      }
    }
  }

  __device__ void finish() const {
    const OutputRows output(p_, sizes_, buffers_, bh_, !Shape::kInt8);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = sum_[r][half];
        sum += __shfl_xor_sync(~0U, sum, 1);
        sum += __shfl_xor_sync(~0U, sum, 2);
        output.store(query(r, half), half, out_[r], sum);
        if (lane_ % 4 == 0) output.store_lse(query(r, half), max_[r][half], sum);
      }
  }

  const KernelParams& p_;
  const Sizes& sizes_;
  const Buffers& buffers_;
  Plan& plan_;
  const int bh_;
  const int first_record_;  // index of the first record of the head's K and V
  const int lane_, group_;
  const int first_row_;  // first row of this warp, among the head's queries
  const uint32_t* const list_;
  const int length_;
  const int keys_;      // number of keys that are not padding
  int next_stage_ = 0;  // stage that load_block() fills next
  float pv_threshold_ = kNeverSkip;
  int last_ = -1;    // index of the last list entry that the group uses
  int skipped_ = 0;  // number of blocks whose P.V was skipped

  uint32_t q_[kRowTiles][Shape::kSharedQueries ? 1 : kKeySteps][4];  // for all steps of Q.K, or for the current step
  RowPairs q_scale_;
  RowPairs max_;
  RowPairs sum_ = {};  // sums of the rounded P over this thread's keys
  float out_[kRowTiles][Shape::kChannelTiles][4] = {};
};

/// Runs one CTA per tile. The last tiles of a head start first, because there causal rows and rows of text have the
/// longest lists.
template <Kernel kKernel, int D>
__global__ void __launch_bounds__(MmaShape<kKernel, D>::kThreads, MmaShape<kKernel, D>::kMinCtas)
    attend_mma(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
               const __grid_constant__ Buffers buffers) {
  extern __shared__ __align__(128) uint8_t shared[];
  auto& plan = *reinterpret_cast<typename MmaShape<kKernel, D>::SharedMemoryPlan*>(shared);
  const int index = static_cast<int>(blockIdx.x);
  const int bh = index / sizes.query_tiles, tile = sizes.query_tiles - 1 - index % sizes.query_tiles;
  MmaTile<kKernel, D>(p, sizes, buffers, plan, bh, tile).run();
}

}  // namespace sparsereel::attention::cuda
