// Chooses the key blocks of each selection tile from pooled queries and keys, by mass (SpargeAttn, arXiv 2502.18137,
// section 3.2) or by the error of their means; the same rules as attention/cpu/selection.h. A CTA scores 16 tiles
// against all key blocks, then a warp chooses for one, and writes its list where that needs no more than the choice
// (Sizes::listed_tiles).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>

#include "attention/cuda/kernels.h"
#include "attention/cuda/selection_cut.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kTiles = 16;  // rows of the tensor core's m16n8k16
constexpr int kThreads = 32 * kTiles;
constexpr float kLeastError = 1e-30F;  // as in attention/cpu/selection.cpp
constexpr float kMostError = 1 << 20;  // that is counted of a tile

/// Pooled queries of the CTA's tiles, and, where blocks are ranked by error, their mean squares.
template <int D>
struct PooledQueries {
  static constexpr int kStride = D + 8;  // no bank conflicts
  alignas(16) __nv_bfloat16 mean[kTiles * kStride], square[kTiles * kStride];
};

/// Rows `group` and `group + 8` of 16 pooled queries. The order of the depth is free as long as both sides agree, so a
/// lane takes 8 consecutive elements of every 32 for two multiplications.
template <int D>
class PooledRows {
 public:
  __device__ PooledRows(const __nv_bfloat16* queries, int group, int part) {
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      low_[k] = *reinterpret_cast<const uint4*>(queries + group * PooledQueries<D>::kStride + k * 32 + part);
      high_[k] = *reinterpret_cast<const uint4*>(queries + (group + 8) * PooledQueries<D>::kStride + k * 32 + part);
    }
  }

  /// c = rows times 8 rows of keys, of which `keys` is the lane's, from its part on.
  __device__ void multiply(const uint16_t* keys, float (&c)[4]) const {
    uint4 key[D / 32];
#pragma unroll
    for (int k = 0; k < D / 32; ++k) key[k] = __ldg(reinterpret_cast<const uint4*>(keys + k * 32));
    c[0] = c[1] = c[2] = c[3] = 0;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      step(c, low_[k].x, high_[k].x, low_[k].y, high_[k].y, key[k].x, key[k].y);
      step(c, low_[k].z, high_[k].z, low_[k].w, high_[k].w, key[k].z, key[k].w);
    }
  }

 private:
  __device__ static void step(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                              uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }

  uint4 low_[D / 32], high_[D / 32];
};

template <int D>
class TileSelector {
 public:
  __device__ TileSelector(const Problem& p, const Sizes& sizes, const Buffers& buffers, uint32_t* shared_keys)
      : p_(p),
        sizes_(sizes),
        buffers_(buffers),
        groups_(ceil_div(sizes.selection_tiles, kTiles)),
        bh_(static_cast<int>(blockIdx.x) / groups_),
        first_tile_(static_cast<int>(blockIdx.x) % groups_ * kTiles),
        choice_(p.selection.heads == nullptr ? p.selection.all : p.selection.heads[bh_ % p.heads]),
        count_(key_count(p, bh_ / p.heads)),
        key_blocks_(ceil_div(min(count_, video_part(p.keys, p.text_tokens)), kRecord)),
        with_means_(p.selection.means ? blocks_with_means(count_, video_part(p.keys, p.text_tokens)) : 0),
        keys_(buffers.scores == nullptr ? shared_keys
                                        : reinterpret_cast<uint32_t*>(buffers.scores) +
                                              static_cast<int64_t>(blockIdx.x) * kTiles * sizes.selectable_keys) {}

  /// PredictedOutput of the CTA's tiles.
  __device__ void predict() const {
    __shared__ PooledQueries<D> queries;
    const int tile = first_tile_ + warp();
    if (choice_.kind == HeadChoice::Kind::dense) return;
    if (tile < sizes_.selection_tiles) pool_queries(tile, queries);
    __syncthreads();
    score<Score::mass_of_all>(queries);
    __syncthreads();
    if (tile < sizes_.selection_tiles) predict(tile);
  }

  __device__ void run() {
    __shared__ PooledQueries<D> queries;
    __shared__ Found kept;
    if (threadIdx.x == 0) kept = {};
    const int tile = first_tile_ + warp();
    const bool diverse = tile < sizes_.selection_tiles && pool_queries(tile, queries);
    __syncthreads();
    if (choice_.kind != HeadChoice::Kind::dense) rank(queries);
    __syncthreads();
    if (tile < sizes_.selection_tiles) choose(tile, diverse || choice_.kind == HeadChoice::Kind::dense, kept);
    __syncthreads();
    if (threadIdx.x == 0) {  // one for all its tiles: they would queue at these addresses
      count(p_, kCountKept, kept.kept);
      count(p_, kCountMeans, kept.means);
    }
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  /// Mean of the tile's queries, from the means of 64, and of their squares; returns whether they are too diverse for
  /// one mean.
  __device__ bool pool_queries(int tile, PooledQueries<D>& queries) const {
    const int row = warp() * PooledQueries<D>::kStride;
    const int video = video_part(p_.queries, p_.text_tokens), blocks = p_.selection.rows / kRecord;
    float square = 0;
    const int total = min(p_.selection.rows, video - tile * p_.selection.rows);
    for (int c = lane(); c < D; c += 32) {
      float sum = 0, squares = 0, direction = 0;
      for (int i = 0; i < blocks; ++i) {
        const int block = tile * blocks + i, real = min(kRecord, video - block * kRecord);
        if (real <= 0) break;
        const int64_t at = (static_cast<int64_t>(bh_) * sizes_.query_blocks + block) * D + c;
        sum += buffers_.q_mean[at] * static_cast<float>(real);
        if (buffers_.q_square != nullptr)
          squares += __bfloat162float(__ushort_as_bfloat16(buffers_.q_square[at])) * static_cast<float>(real);
        if (buffers_.q_direction != nullptr) direction += buffers_.q_direction[at];
      }
      queries.mean[row + c] = __float2bfloat16(sum / static_cast<float>(total));
      queries.square[row + c] = __float2bfloat16(squares / static_cast<float>(total));
      square += direction * direction;
    }
    if (buffers_.q_direction == nullptr) return false;
    return warp_sum(square) / (static_cast<float>(total) * static_cast<float>(total)) < choice_.similarity;
  }

  __device__ void rank(const PooledQueries<D>& queries) const {
    if (!p_.selection.by_error) return score<Score::mass>(queries);
    note_errors(queries);
    score<Score::error>(queries);
  }

  /// Calls f(first, at) for every 8 key blocks of this warp; at: of the lane's columns, in arrays of D a block.
  template <typename F>
  __device__ void each_column_tile(const F& f) const {
    const int64_t head = static_cast<int64_t>(bh_) * sizes_.key_blocks;
#pragma unroll 2
    for (int first = warp() * 8; first < key_blocks_; first += kTiles * 8)
      f(first, (head + min(first + lane() / 4, key_blocks_ - 1)) * D + lane() % 4 * 8);
  }

  /// keys_[tile][block] of a lane's i-th element of a product; null past the last block.
  __device__ uint32_t* place(int first, int i) const {
    const int row = lane() / 4 + i / 2 * 8, column = column_of(first, i);
    return column < key_blocks_ ? keys_ + row * sizes_.selectable_keys + column : nullptr;
  }
  __device__ static int column_of(int first, int i) {
    return first + lane() % 4 * 2 + i % 2;
  }

  enum class Score { mass, mass_of_all, error };

  /// Keys of the 16 tiles, from the logarithm of the mass, and for the error plus what note_errors() left; 0 where a
  /// block is forced.
  template <Score kScore>
  __device__ void score(const PooledQueries<D>& queries) const {
    const PooledRows<D> rows(queries.mean, lane() / 4, lane() % 4 * 8);
    each_column_tile([&](int first, int64_t at) {
      float c[4];
      rows.multiply(buffers_.k_mean + at, c);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t* key = place(first, i);
        if (key == nullptr) continue;
        const float error = kScore == Score::error ? __uint_as_float(*key) : 0.0F;
        const bool is_candidate = kScore == Score::mass_of_all || !forced(column_of(first, i));
        *key = is_candidate ? ordered(fmaf(c[i], p_.scale, error)) : 0;
      }
    });
  }

  /// The logarithm of what a mean in place of a block errs by, a unit of mass: the deviation of the scores times that
  /// of V, and half the scores' variance times how far V's mean is off.
  __device__ void note_errors(const PooledQueries<D>& queries) const {
    const PooledRows<D> rows(queries.square, lane() / 4, lane() % 4 * 8);
    const ValueSpread* spreads = buffers_.v_spread + static_cast<int64_t>(bh_) * sizes_.key_blocks;
    each_column_tile([&](int first, int64_t at) {
      float variance[4];
      rows.multiply(buffers_.k_variance + at, variance);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t* key = place(first, i);
        if (key == nullptr) continue;
        const ValueSpread spread = spreads[column_of(first, i)];
        const float square = fmaxf(variance[i], 0.0F) * (kLn2 * kLn2);  // natural units
        *key = __float_as_uint(__logf(sqrtf(square) * spread.deviation + 0.5F * square * spread.far + kLeastError));
      }
    });
  }

  /// Means stand for whole blocks only.
  __device__ bool forced(int block) const {
    if (p_.selection.means && block >= with_means_) return true;
    return buffers_.k_similarity != nullptr &&
           buffers_.k_similarity[static_cast<int64_t>(bh_) * sizes_.key_blocks + block] < choice_.similarity;
  }

  /// kept: of the CTA, in shared memory; grows by what the list holds.
  __device__ void choose(int tile, bool all, Found& kept) const {
    const int first = tile * p_.selection.rows;
    const int last = min(first + p_.selection.rows, video_part(p_.queries, p_.text_tokens)) - 1;
    const int visible = ceil_div(visible_keys(p_, count_, last), kRecord);
    // Under a causal mask the blocks on the diagonal are kept, so that no query loses its own key.
    const int diagonal = p_.causal ? max(0, visible_keys(p_, count_, first) - 1) / kRecord : visible;
    const Candidates candidates{keys_ + warp() * sizes_.selectable_keys,
                                all ? 0 : min(min(visible, diagonal), key_blocks_)};
    const Spread spread = all ? Spread{} : candidates.spread();
    Cut cut{1, kAllTies};
    if (spread.count > 0 && choice_.kind == HeadChoice::Kind::topk) {
      const int wanted = max(1, static_cast<int>(floor(choice_.topk * visible)));
      if (wanted < spread.count) cut = cut_by_count(candidates, wanted, spread);
    } else if (spread.count > 0 && choice_.kind == HeadChoice::Kind::error) {
      cut = cut_by_rest(candidates, choice_.error * mean_length() * expf(log_sum(tile)));
    } else if (spread.count > 0 && choice_.cdf < 1) {
      cut = cut_by_mass(candidates, choice_.cdf);
    }
    if (buffers_.outputs != nullptr && spread.count > 0) count_error(tile, candidates, cut);
    if (tile < sizes_.listed_tiles) {
      const bool drops = p_.selection.means && !(cut.threshold == 1 && cut.ties == kAllTies);
      const Found found = write_list(tile, candidates, cut, visible, drops);
      if (lane() == 0) {
        atomicAdd(&kept.kept, found.kept);
        atomicAdd(&kept.means, found.means);
      }
    } else {
      write_bitmap(tile, candidates, cut);
    }
  }

  /// Of the head's tiles, on average.
  __device__ float mean_length() const {
    float sum = 0;
    for (int tile = lane(); tile < sizes_.selection_tiles; tile += 32) sum += output_of(tile).length;
    return warp_sum(sum) / static_cast<float>(sizes_.selection_tiles);
  }
  __device__ float log_sum(int tile) const {
    return output_of(tile).log_sum;
  }
  __device__ PredictedOutput& output_of(int tile) const {
    return buffers_.outputs[static_cast<int64_t>(bh_) * sizes_.selection_tiles + tile];
  }

  /// What the means of the blocks that are not kept are predicted to err by.
  __device__ void count_error(int tile, const Candidates& candidates, Cut cut) const {
    const float rest = rest_of(candidates, cut) * __expf(-log_sum(tile)), length = mean_length();
    const float error = length > 0 ? fminf(rest / length, kMostError) : 0.0F;
    if (lane() == 0) count(p_, kCountPredictedError, __float2ll_rn(error * (1 << kErrorBits)));
  }

  /// From the masses of all blocks that the tile sees.
  __device__ void predict(int tile) const {
    const int last = min((tile + 1) * p_.selection.rows, video_part(p_.queries, p_.text_tokens)) - 1;
    const Candidates all{keys_ + warp() * sizes_.selectable_keys,
                         min(ceil_div(visible_keys(p_, count_, last), kRecord), key_blocks_)};
    const float top = all.count > 0 ? from_ordered(all.largest()) : 0.0F,
                sum = all.count > 0 ? all.mass_from(1, top) : 0.0F;
    const int64_t head = static_cast<int64_t>(bh_);
    float square = 0;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) {
      const int channel = c * 32 + lane();
      float output = 0;
      for (int j = 0; j < all.count; ++j)  // a ragged last block is always kept, and has no mean here
        if (j < with_means_)
          output =
              fmaf(__expf(from_ordered(all.keys[j]) - top),
                   __half2float(__ushort_as_half(buffers_.v_block_mean[(head * sizes_.key_blocks + j) * D + channel])),
                   output);
      output =
          output / fmaxf(sum, FLT_MIN) * buffers_.v_scale[head * D + channel] + buffers_.v_centre[head * D + channel];
      square = fmaf(output, output, square);
    }
    square = warp_sum(square);
    if (lane() == 0) output_of(tile) = {top + logf(fmaxf(sum, FLT_MIN)), sqrtf(square)};
  }

  /// f(word, which of its 32 blocks are kept), for the blocks [0, 32 * words).
  template <typename F>
  __device__ void each_word(int words, const Candidates& candidates, Cut cut, const F& f) const {
    int ties = 0;
    for (int word = 0; word < words; ++word) {
      const int block = word * 32 + lane();
      const uint32_t key = block < candidates.count ? candidates.keys[block] : 0;
      bool kept = key == 0 || key >= cut.threshold;
      if (cut.ties != kAllTies) {
        const bool tie = key == cut.threshold;
        const uint32_t tied = __ballot_sync(~0U, tie);
        kept = kept && !(tie && ties + __popc(tied & before()) >= cut.ties);
        ties += __popc(tied);
      }
      f(word, __ballot_sync(~0U, kept));
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

  /// Returns what is in it. drops: whether some blocks are not; then all records of means come last.
  __device__ Found write_list(int tile, const Candidates& candidates, Cut cut, int visible, bool drops) const {
    const int64_t at = static_cast<int64_t>(bh_) * sizes_.query_tiles + tile;
    uint32_t* list = buffers_.lists + at * sizes_.list_entries;
    const int groups = ceil_div(min(p_.selection.rows, p_.queries - tile * p_.selection.rows), kRecord);
    const int means = drops ? ceil_div(with_means_, kMeanBlocks) : 0;
    int length = 0;
    each_word(ceil_div(visible, 32), candidates, cut, [&](int word, uint32_t bits) {
      const int block = word * 32 + lane(), left = visible - word * 32;
      if (left < 32) bits &= (1U << left) - 1;
      if ((bits >> lane() & 1) != 0) list[length + __popc(bits & before())] = block | whole_for(groups);
      length += __popc(bits);
    });
    if (means > 0) {
      each_word(ceil_div(with_means_, 32), candidates, cut, [&](int word, uint32_t bits) {
        const int index = 2 * word + lane(), rest = with_means_ - word * 32;
        if (lane() >= 2 || index >= means) return;
        const uint32_t dropped = ~bits & (rest < 32 ? (1U << rest) - 1 : ~0U);
        list[length + index] = mean_entry(index, dropped >> kMeanBlocks * lane() & 0xFFFF, whole_for(groups));
      });
    }
    const int blocks = length;
    length += means;
    if (lane() == 0) {
      if (length == 0) list[0] = 0;  // kernels rely on one entry; this one covers no row
      buffers_.tile_lists[at] = {max(length, 1), length > 0 ? 1 : 0, means};
    }
    return {blocks * groups, means * groups};
  }

  const Problem& p_;
  const Sizes& sizes_;
  const Buffers& buffers_;
  const int groups_, bh_, first_tile_;
  const HeadChoice choice_;
  const int count_, key_blocks_;
  const int with_means_;  // key blocks that have means
  uint32_t* const keys_;
};

template <int D>
__global__ void __launch_bounds__(kThreads, D == 256 ? 1 : 2)
    predict_outputs(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                    const __grid_constant__ Buffers buffers) {
  extern __shared__ uint32_t shared_keys[];
  TileSelector<D>(p, sizes, buffers, shared_keys).predict();
}

template <int D>
__global__ void __launch_bounds__(kThreads, D == 256 ? 1 : 2)
    select(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
           const __grid_constant__ Buffers buffers) {
  extern __shared__ uint32_t shared_keys[];
  TileSelector<D>(p, sizes, buffers, shared_keys).run();
}

}  // namespace

void launch_select(const Call& call) {
  if (call.buffers.bitmap == nullptr || call.sizes.selection_tiles == 0) return;
  const int groups = ceil_div(call.sizes.selection_tiles, kTiles);
  const int bytes =
      call.buffers.scores == nullptr ? kTiles * call.sizes.selectable_keys * static_cast<int>(sizeof(uint32_t)) : 0;
  const auto run = [&](auto* kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<static_cast<unsigned>(call.sizes.batch_heads) * groups, kThreads, bytes, call.stream>>>(
        call.problem, call.sizes, call.buffers);
  };
  const auto run_both = [&](auto* predict, auto* choose) {
    if (call.buffers.outputs != nullptr) run(predict);
    run(choose);
  };
  if (call.sizes.D == 64) run_both(predict_outputs<64>, select<64>);
  if (call.sizes.D == 128) run_both(predict_outputs<128>, select<128>);
  if (call.sizes.D == 256) run_both(predict_outputs<256>, select<256>);
}

}  // namespace sparsereel::attention::cuda
