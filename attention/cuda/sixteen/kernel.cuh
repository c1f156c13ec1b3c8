// Attention in 16 bits over the lists of key blocks. mma.sync computes Q.K and P.V in the type of the rows, fp16 or
// bf16, with fp32 sums. Keys and values are the call's rows; means are in Buffers::mean_keys and mean_values.
//
// A CTA owns a tile of 192 queries, or a third of it. Keys pass through a ring of stages in shared memory, which
// cp.async fills. Each warp multiplies its own query rows with all keys of a stage.
#pragma once

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/mma.cuh"
#include "attention/cuda/sixteen/rows.cuh"
#include "attention/cuda/sixteen/shape.cuh"
#include "attention/cuda/tile_order.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {

template <typename T, int D, bool kSkips>
class SixteenTile {
  using Shape = SixteenShape<D, kSkips>;
  using Stage = typename Shape::Stage;
  using Copy = SixteenCopy<T, D, kSkips>;
  static constexpr int kRowTiles = Shape::kRowTiles, kKeyTiles = Shape::kKeyTiles, kKeys = Shape::kKeys,
                       kAtOnce = Shape::kAtOnce, kStagesOfBlock = kRecord / kKeys;
  static constexpr int kGroupThreads = kRecord / (16 * kRowTiles) * 32;  // threads of a group of rows, if kSkips
  static constexpr int kSteps = D / 16, kChunks = D / kLaneElements;     // steps of Q.K; 16-byte chunks in a row
  // Weights are relative to a reference maximum of the row. It rises only when a thread's weights of a row add up to
  // more than kMostWeight, so most steps need not search for a maximum. Weights up to this limit fit into fp16, and
  // their products with any values of V fit into the fp32 sums.
  static constexpr float kMostWeight = 1024;
  // Maximum of a row that has seen no key. It is finite, so that a score of -inf minus it is -inf instead of NaN.
  static constexpr float kNothing = -1e30F;

  using Scores = float[kRowTiles][kKeyTiles][4];
  using Weights = uint32_t[kRowTiles][4];  // weights of 16 keys
  using RowPairs = float[kRowTiles][2];    // a number for row g and one for row g + 8 of each row tile

 public:
  __device__ SixteenTile(const KernelParams& p, const Sizes& sizes, const Buffers& buffers,
                         typename Shape::SharedMemoryPlan& shared, TileIndex at, int part)
      : p_(p),
        sizes_(sizes),
        buffers_(buffers),
        stages_(shared.stages),
        queries_(shared.queries_address()),
        bh_(at.bh),
        bk_(sizes.group.of(at.bh)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        part_(part),
        first_row_((at.tile * Shape::kParts + part) * Shape::kRows +
                   static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles),
        list_(buffers.lists + at.list(sizes) * sizes.list_entries),
        items_(buffers.tile_lists[at.list(sizes)].length * kStagesOfBlock),
        keys_(key_count(p, at.bh / p.heads)),
        own_keys_(Copy::own_part(p.k, bk_ / sizes.kv_heads, bk_ % sizes.kv_heads)),
        own_values_(Copy::own_part(p.v, bk_ / sizes.kv_heads, bk_ % sizes.kv_heads)),
        scale_(p.scale * kLog2e) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) most_[r][0] = most_[r][1] = highest_[r][0] = highest_[r][1] = kNothing;
    load_queries();
    if constexpr (kSkips) start_skipping();
  }

  __device__ void run() {
    uint32_t entries[Shape::kStages - 1];  // list entries of the stages that are filled
    next_entry_ = list_[0];
#pragma unroll
    for (uint32_t& entry : entries) {
      entry = next_entry_;
      load_next();
    }
    int stage = 0;
    for (int i = 0; i < items_; ++i) {
      const uint32_t entry = entries[0];
#pragma unroll
      for (int next = 0; next + 1 < Shape::kStages - 1; ++next) entries[next] = entries[next + 1];
      entries[Shape::kStages - 2] = next_entry_;
      wait_copies<Shape::kStages - 2>();
      __syncthreads();  // now all threads may read stage i, and stage i - 1 is free
      load_next();
#pragma unroll
      for (int first = 0; first < kKeys; first += kAtOnce) {
        if (uses(entry)) {
          attend(stages_[stage], first, i % kStagesOfBlock * kKeys, entry, i / kStagesOfBlock == last_);
        } else if constexpr (kSkips) {
          group_votes(false);
        }
      }
      stage = after(stage);
    }
    if (kSkips && threadIdx.x % kGroupThreads == 0) count(p_, kCountSkippedPv, skipped_ / Shape::kPieces);
    finish();
  }

 private:
  /// Returns the index, among the head's queries, of row g (half 0) or g + 8 (half 1) of a row tile.
  __device__ int query(int row_tile, int half) const {
    return first_row_ + 16 * row_tile + 8 * half + lane_ / 4;
  }

  /// Returns the index, in the tile, of the group of 64 rows to which a row tile of this warp belongs.
  __device__ int group(int row_tile) const {
    return part_ + (static_cast<int>(threadIdx.x) / 32 * kRowTiles + row_tile) / (kRecord / 16);
  }

  /// uses() returns true if any of the warp's rows uses the entry, and uses_whole() if all rows use all its keys.
  __device__ bool uses(uint32_t entry) const {
    bool any = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) any = any || entry_cover(entry, group(r)) != Cover::none;
    return any;
  }
  __device__ bool uses_whole(uint32_t entry) const {
    bool all = true;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) all = all && entry_cover(entry, group(r)) == Cover::whole;
    return all;
  }

  __device__ const T* query_row(int row) const {
    return static_cast<const T*>(p_.q.data) + bh_ / p_.heads * p_.q.batch_stride + bh_ % p_.heads * p_.q.head_stride +
           row * p_.q.token_stride;
  }

  /// Loads the queries, with zeros for rows and columns that do not exist.
  __device__ void load_queries() {
    if constexpr (Shape::kSharesQueries) {  // each warp copies its own rows, in the group of the first stage's copies
#pragma unroll
      for (int i = 0; i < 16 * kRowTiles * kChunks / 32; ++i) {
        const int row = i * (32 / kChunks) + lane_ / kChunks, chunk = lane_ % kChunks;
        const bool real = first_row_ + row < p_.queries && chunk * kLaneElements < p_.head_dim;
        copy_or_zero(own_queries() + half_value_offset<D>(row, chunk * 16),
                     real ? query_row(first_row_ + row) + chunk * kLaneElements : p_.q.data, real);
      }
    } else {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = query(r, half);
#pragma unroll
          for (int i = 0; i < 2 * kSteps; ++i) {
            const int column = 8 * i + lane_ % 4 * 2;
            const bool real = row < p_.queries && column < p_.head_dim;
            q_[r][i / 2][i % 2 * 2 + half] = real ? *reinterpret_cast<const uint32_t*>(query_row(row) + column) : 0U;
          }
        }
    }
  }

  /// Returns the address of the warp's rows of Q in shared memory.
  __device__ uint32_t own_queries() const {
    return queries_ + static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles * Shape::kRowBytes;
  }

  __device__ void start_skipping() {
    const HeadChoice* heads = p_.selection.heads;
    pv_threshold_ = heads == nullptr ? p_.selection.all.pv_threshold : heads[bh_ % p_.heads].pv_threshold;
    last_ = items_ / kStagesOfBlock - 1;
    while (last_ >= 0 && !uses(list_[last_])) --last_;
  }

  /// Starts the copy of the next item, a list entry or a piece of one, into its stage. Past the last item, only closes
  /// an empty group of copies, so that wait_copies() still counts the right number of groups in flight.
  __device__ void load_next() {
    if (next_ < items_) {
      Stage& stage = stages_[next_stage_];
      const int piece = next_ % kStagesOfBlock * kKeys;
      if (is_mean(next_entry_)) {
        const int64_t record = static_cast<int64_t>(bk_) * sizes_.mean_records + mean_index(next_entry_);
        const int64_t first =
            (record * kRecord + piece) * Shape::kRowBytes + Copy::own_row() * Shape::kRowBytes + Copy::own_byte();
        Copy::copy(p_, stage.k, reinterpret_cast<const uint8_t*>(buffers_.mean_keys) + first, Shape::kRowBytes, kKeys);
        Copy::copy(p_, stage.v, reinterpret_cast<const uint8_t*>(buffers_.mean_values) + first, Shape::kRowBytes,
                   kKeys);
      } else {
        const int first = entry_block(next_entry_) * kRecord + piece;
        const int64_t k_bytes = Copy::row_bytes(p_.k), v_bytes = Copy::row_bytes(p_.v);
        Copy::copy(p_, stage.k, own_keys_ + first * k_bytes, k_bytes, keys_ - first);
        Copy::copy(p_, stage.v, own_values_ + first * v_bytes, v_bytes, keys_ - first);
      }
    }
    commit_copies();
    next_stage_ = after(next_stage_);
    ++next_;
    if (next_ < items_) next_entry_ = list_[next_ / kStagesOfBlock];
  }

  __device__ static int after(int stage) {
    return stage == Shape::kStages - 1 ? 0 : stage + 1;
  }

  /// Attends to the kAtOnce keys of a stage from key `first` on, for the warp's rows. The stage itself begins at key
  /// `begin` of its block or record of means.
  __device__ void attend(const Stage& stage, int first, int begin, uint32_t entry, bool last) {
    Scores s;
    multiply_keys(stage, first, s);
    const bool means = is_mean(entry);
    if (means) {
      mask_means(entry, begin + first, s);
    } else if (!uses_whole(entry) || (entry_block(entry) + 1) * kRecord > keys_) {
      mask(entry, begin + first, s);
    }
    const float weight = means ? kCellLog2 : 0.0F;  // log2 of the number of keys for which a key of this entry counts
    if constexpr (kSkips) {
      if (!rises(s, weight) && !last && !means) {
        ++skipped_;
        return;
      }
    }
#pragma unroll
    for (int step = 0; step < kAtOnce / 16; ++step) {  // exponentials of a step run during the products of another
      Weights weights;
      RowPairs sum;
      if (!weigh(s, step, weight, weights, sum)) {
        follow_maxima(s, weight);
        weigh(s, step, weight, weights, sum);
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        sum_[r][0] += sum[r][0];
        sum_[r][1] += sum[r][1];
      }
      add_values(stage, first + step * 16, weights);
    }
  }

  __device__ void multiply_keys(const Stage& stage, int first, Scores& s) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[r][n][i] = 0;
    // One load_matrices() loads keys 0 to 7 with two chunks of 8 columns, and keys 8 to 15 with the same chunks.
    const uint32_t k = shared_address(stage.k) + half_value_offset<D>(lane_ / 16 * 8 + lane_ % 8, lane_ / 8 % 2 * 16);
    const uint32_t q = own_queries() + half_value_offset<D>(lane_ % 16, lane_ / 16 * 16);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        if constexpr (Shape::kSharesQueries) {
          load_matrices(a[r], (q ^ step * 32) + r * 16 * Shape::kRowBytes);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[r][i] = q_[r][step][i];
        }
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        uint32_t b[4];
        load_matrices(b, (k ^ step * 32) + (first + n * 8) * Shape::kRowBytes);  // the swizzle repeats every 8 rows
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          multiply_sixteen<T>(s[r][n], a[r], b[0], b[1]);
          multiply_sixteen<T>(s[r][n + 1], a[r], b[2], b[3]);
        }
      }
    }
  }

  __device__ void mask(uint32_t entry, int first, Scores& s) const {
    const int first_key = entry_block(entry) * kRecord + first;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const bool used = entry_cover(entry, group(r)) != Cover::none;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int seen = used ? visible_keys(p_, keys_, query(r, i / 2)) : 0;
        const int left = seen - first_key - lane_ % 4 * 2 - i % 2;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n)
          if (n * 8 >= left) s[r][n][i] = -INFINITY;
      }
    }
  }

  /// Sets scores to -inf if their means belong to blocks that are not dropped. The scores are those of the means from
  /// index `first` of the record on.
  __device__ void mask_means(uint32_t entry, int first, Scores& s) const {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      const bool dropped = (entry >> ((first / 8 + n) / 2 * 4 + lane_ % 4) & 1) != 0;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        if (dropped && entry_cover(entry, group(r)) != Cover::none) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) s[r][n][i] = -INFINITY;
      }
    }
  }

  /// Returns the largest score of a row, over its four lanes, in log2 units.
  __device__ float maximum(const float (&s)[kKeyTiles][4], int half, float weight) const {
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
    return fmaf(fmaxf(most, __shfl_xor_sync(~0U, most, 2)), scale_, weight);
  }

  /// Returns true if a score of any of the group's 64 rows is less than the P.V threshold below the row's maximum. The
  /// group's threads call it together.
  __device__ bool rises(const Scores& s, float weight) {
    bool rise = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float most = maximum(s[r], half, weight);
        rise = rise || (query(r, half) < p_.queries && most + pv_threshold_ > highest_[r][half]);
        highest_[r][half] = fmaxf(highest_[r][half], most);
      }
    return group_votes(rise);
  }

  __device__ bool group_votes(bool predicate) const {
    return any_of_group(kVotes + static_cast<int>(threadIdx.x) / kGroupThreads, kGroupThreads, predicate);
  }

  /// Computes P = 2^(s - reference maximum) as the A operand of P.V, and this thread's sums of P. Returns false, with
  /// invalid weights, if a sum is above kMostWeight in any lane.
  __device__ bool weigh(const Scores& s, int step, float log2_weight, Weights& weights, RowPairs& sum) const {
    bool fits = true;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float shift = log2_weight - most_[r][half];
        float all = 0;
#pragma unroll
        for (int n = 2 * step; n < 2 * step + 2; ++n) {
          const float x = fast_exp2(fmaf(s[r][n][2 * half], scale_, shift));
          const float y = fast_exp2(fmaf(s[r][n][2 * half + 1], scale_, shift));
          all += x + y;
          weights[r][n % 2 * 2 + half] = pack_pair<T>(x, y);
        }
        sum[r][half] = all;
        fits = fits && all <= kMostWeight;
      }
    return __all_sync(~0U, fits);
  }

  /// Raises the reference maximum of each row to the largest score so far, and rescales the row's sums.
  __device__ void follow_maxima(const Scores& s, float weight) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float before = most_[r][half];
        most_[r][half] = fmaxf(before, maximum(s[r], half, weight));
        const float alpha = fast_exp2(before - most_[r][half]);
        sum_[r][half] *= alpha;
#pragma unroll
        for (int n = 0; n < Shape::kChannelTiles; ++n) {
          out_[r][n][2 * half] *= alpha;
          out_[r][n][2 * half + 1] *= alpha;
        }
      }
  }

  __device__ void add_values(const Stage& stage, int first, const Weights& weights) {
    // One load_matrices_transposed() loads 16 keys with 8 channels, and the same keys with the next 8 channels.
    const uint32_t v = shared_address(stage.v) + half_value_offset<D>(lane_ % 16, lane_ / 16 * 16);
#pragma unroll
    for (int n = 0; n < Shape::kChannelTiles; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, (v ^ n * 16) + first * Shape::kRowBytes);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply_sixteen<T>(out_[r][n], weights[r], b[0], b[1]);
        multiply_sixteen<T>(out_[r][n + 1], weights[r], b[2], b[3]);
      }
    }
  }

  __device__ void finish() const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = sum_[r][half];
        sum += __shfl_xor_sync(~0U, sum, 1);
        sum += __shfl_xor_sync(~0U, sum, 2);
        store_sixteen<T>(p_, bh_, lane_, query(r, half), half, out_[r], sum);
        if (p_.lse == nullptr || lane_ % 4 != 0 || query(r, half) >= p_.queries) continue;
        p_.lse[static_cast<int64_t>(bh_) * p_.queries + query(r, half)] =
            sum == 0 ? -INFINITY : kLn2 * (most_[r][half] + log2f(sum));
      }
  }

  const KernelParams& p_;
  const Sizes& sizes_;
  const Buffers& buffers_;
  Stage* const stages_;
  const uint32_t queries_;  // address of the tile's queries in shared memory, if kSharesQueries
  const int bh_, bk_, lane_, part_;
  const int first_row_;  // first row of this warp, among the head's queries
  const uint32_t* const list_;
  const int items_;  // number of items that are loaded into stages: list entries, or pieces of them
  const int keys_;   // number of keys that are not padding
  const uint8_t *const own_keys_, *const own_values_;  // where this thread's first copy of K and of V starts
  const float scale_;
  uint32_t next_entry_ = 0;
  int next_ = 0, next_stage_ = 0;  // item that load_next() loads next, and its stage
  float pv_threshold_ = 0;
  int last_ = -1;    // index of the last list entry that the group uses
  int skipped_ = 0;  // number of pieces whose P.V was skipped

  uint32_t q_[kRowTiles][Shape::kSharesQueries ? 1 : kSteps][4];
  RowPairs most_;      // reference maximum, in log2 units
  RowPairs highest_;   // true maximum of the scores, by which the skipping of P.V is decided
  RowPairs sum_ = {};  // sum of this thread's weights
  float out_[kRowTiles][Shape::kChannelTiles][4] = {};
};

template <typename T, int D, bool kSkips>
__global__ void __launch_bounds__(SixteenShape<D, kSkips>::kThreads, SixteenShape<D, kSkips>::kMinCtas)
    attend_sixteen(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                   const __grid_constant__ Buffers buffers) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const TileIndex at(sizes, tile_at(sizes, buffers, static_cast<int>(blockIdx.x)));
  auto& plan = *reinterpret_cast<typename SixteenShape<D, kSkips>::SharedMemoryPlan*>(shared);
  SixteenTile<T, D, kSkips>(p, sizes, buffers, plan, at, static_cast<int>(blockIdx.y)).run();
}

template <typename T, int D, bool kSkips>
void launch_sixteen_shape(const LaunchContext& context) {
  using Shape = SixteenShape<D, kSkips>;
  const auto kernel = attend_sixteen<T, D, kSkips>;
  allow_shared_bytes(kernel, Shape::kSharedBytes);
  const dim3 grid(static_cast<unsigned>(context.sizes.whole_tiles), Shape::kParts);
  context.start(kernel, grid, Shape::kThreads, Shape::kSharedBytes);
}

template <typename T, int D>
void launch_sixteen_dim(const LaunchContext& context) {
  context.params.selection.skips_pv ? launch_sixteen_shape<T, D, true>(context)
                                    : launch_sixteen_shape<T, D, false>(context);
}

template <typename T>
void launch_sixteen_type(const LaunchContext& context) {
  if (context.sizes.D == 64) launch_sixteen_dim<T, 64>(context);
  if (context.sizes.D == 128) launch_sixteen_dim<T, 128>(context);
  if (context.sizes.D == 256) launch_sixteen_dim<T, 256>(context);
}

}  // namespace sparsereel::attention::cuda
