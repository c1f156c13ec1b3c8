// Chooses the key blocks of each selection tile from pooled queries and keys (SpargeAttn, arXiv 2502.18137,
// section 3.2); the same rules as attention/cpu/selection.h. A CTA scores 16 tiles against all key blocks, then a warp
// chooses for one.
#include <cuda_bf16.h>

#include <cfloat>
#include <cmath>

#include "attention/cuda/kernels.h"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kTiles = 16;  // rows of the tensor core's m16n8k16
constexpr int kThreads = 32 * kTiles;

/// Scores become integers from 1 up, evenly over the row's range: 0 is free to mean "no candidate", and the search for
/// a threshold can interpolate.
constexpr uint32_t kKeyRange = 1U << 30;
constexpr uint32_t kNan = kKeyRange + 2;  // a broken block is computed, and seen

__device__ float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0U, x, lanes);
  return x;
}

__device__ float warp_max(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, lanes));
  return x;
}

/// Candidates of one tile, worked on by one warp. Scores in shared or global memory, -inf where a block is forced.
class Candidates {
 public:
  __device__ Candidates(uint32_t* keys, int count) : keys_(keys), count_(count) {
    float most = -INFINITY, least = -INFINITY;  // of the scores, and of their negatives
    each([&](uint32_t& key) {
      const float score = __uint_as_float(key);
      if (score == -INFINITY) return;
      most = fmaxf(most, score);
      least = fmaxf(least, -score);
    });
    top_ = warp_max(most);
    const float bottom = -warp_max(least);
    per_key_ = fmaxf(top_ - bottom, FLT_MIN) / static_cast<float>(kKeyRange);
    const float keys_per = 1.0F / per_key_;
    each([&](uint32_t& key) {
      const float score = __uint_as_float(key);
      const float place = fminf((score - bottom) * keys_per, static_cast<float>(kKeyRange));
      key = score == -INFINITY ? 0 : isnan(score) ? kNan : 1 + static_cast<uint32_t>(place);
    });
    __syncwarp();
  }

  __device__ uint32_t key(int block) const { return block < count_ ? keys_[block] : 0; }
  __device__ int size() const { return count_; }

  __device__ float count_from(uint32_t threshold) const {
    int found = 0;
    each([&](uint32_t key) { found += key >= threshold ? 1 : 0; });
    return static_cast<float>(__reduce_add_sync(~0U, found));
  }

  /// Sum of exp(score - top) over the candidates from a threshold on.
  __device__ float mass_from(uint32_t threshold) const {
    float mass = 0;
    each([&](uint32_t key) { mass += key >= threshold ? mass_of(key) : 0.0F; });
    return warp_sum(mass);
  }

  __device__ float mass_of(uint32_t key) const {
    return __expf((static_cast<float>(key) - static_cast<float>(kKeyRange) - 1) * per_key_);
  }

 private:
  template <typename F>
  __device__ void each(const F& f) const {
    for (int j = static_cast<int>(threadIdx.x) % 32; j < count_; j += 32) f(keys_[j]);
  }

  uint32_t* const keys_;
  const int count_;
  float top_;
  float per_key_;
};

/// Every candidate above `threshold` is kept, and the first `ties` of those equal to it.
struct Cut {
  uint32_t threshold;
  int ties;
};

/// The largest threshold at which measure(threshold), which falls from `all` at 1 to 0, is at least `wanted`: bisection
/// and interpolation in turn.
template <typename F>
__device__ uint32_t largest_with(const F& measure, float wanted, float all) {
  uint32_t low = 1, high = kNan + 1;
  float at_low = all, at_high = 0;
  for (int step = 0; high - low > 1 && at_low != wanted; ++step) {
    const uint32_t gap = high - low;
    const float part = step % 3 == 2 ? 0.5F : (at_low - wanted) / (at_low - at_high);
    const uint32_t middle = low + min(max(static_cast<uint32_t>(part * static_cast<float>(gap)), 1U), gap - 1);
    const float measured = measure(middle);
    if (measured >= wanted) {
      low = middle;
      at_low = measured;
    } else {
      high = middle;
      at_high = measured;
    }
  }
  return low;
}

__device__ Cut cut_by_count(const Candidates& candidates, int wanted, float all) {
  const auto count = [&](uint32_t threshold) { return candidates.count_from(threshold); };
  const uint32_t threshold = largest_with(count, static_cast<float>(wanted), all);
  return {threshold, wanted - static_cast<int>(candidates.count_from(threshold + 1))};
}

__device__ Cut cut_by_mass(const Candidates& candidates, float share) {
  const float all = candidates.mass_from(1), wanted = share * all;
  const auto mass = [&](uint32_t threshold) { return candidates.mass_from(threshold); };
  const uint32_t threshold = largest_with(mass, wanted, all);
  const float missing = wanted - candidates.mass_from(threshold + 1);
  return {threshold, max(1, static_cast<int>(ceilf(missing / candidates.mass_of(threshold))))};
}

template <int D>
class TileSelector {
  static constexpr int kStride = D + 8;  // of the pooled queries in shared memory: no bank conflicts

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
        keys_(buffers.scores == nullptr ? shared_keys
                                        : reinterpret_cast<uint32_t*>(buffers.scores) +
                                              static_cast<int64_t>(blockIdx.x) * kTiles * sizes.selectable_keys) {}

  __device__ void run() {
    __shared__ __nv_bfloat16 queries[kTiles * kStride];
    const int tile = first_tile_ + warp();
    const bool diverse = tile < sizes_.selection_tiles && pool_queries(tile, queries + warp() * kStride);
    __syncthreads();
    if (choice_.kind != HeadChoice::Kind::dense) score(queries);
    __syncthreads();
    if (tile < sizes_.selection_tiles) choose(tile, diverse || choice_.kind == HeadChoice::Kind::dense);
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  /// Mean of the tile's queries, from the means of 64; returns whether they are too diverse for one mean.
  __device__ bool pool_queries(int tile, __nv_bfloat16* out) const {
    const int video = video_part(p_.queries, p_.text_tokens), blocks = p_.selection.rows / kRecord;
    float square = 0;
    const int total = min(p_.selection.rows, video - tile * p_.selection.rows);
    for (int c = lane(); c < D; c += 32) {
      float sum = 0, direction = 0;
      for (int i = 0; i < blocks; ++i) {
        const int block = tile * blocks + i, real = min(kRecord, video - block * kRecord);
        if (real <= 0) break;
        const int64_t at = (static_cast<int64_t>(bh_) * sizes_.query_blocks + block) * D + c;
        sum += buffers_.q_mean[at] * static_cast<float>(real);
        if (buffers_.q_direction != nullptr) direction += buffers_.q_direction[at];
      }
      out[c] = __float2bfloat16(sum / static_cast<float>(total));
      square += direction * direction;
    }
    if (buffers_.q_direction == nullptr) return false;
    return warp_sum(square) / (static_cast<float>(total) * static_cast<float>(total)) < choice_.similarity;
  }

  /// keys_[tile][block] for the 16 tiles: scores, -inf where a block is forced.
  __device__ void score(const __nv_bfloat16* queries) const {
    const int group = lane() / 4, pair = lane() % 4 * 2;
    for (int first = warp() * 8; first < key_blocks_; first += kTiles * 8) {
      const int block = min(first + group, key_blocks_ - 1);
      const float* mean = buffers_.k_mean + (static_cast<int64_t>(bh_) * sizes_.key_blocks + block) * D;
      float c[4] = {};
#pragma unroll
      for (int k = 0; k < D; k += 16) {
        const auto a = [&](int row, int column) {
          return *reinterpret_cast<const uint32_t*>(queries + row * kStride + k + column);
        };
        const uint32_t b0 = pack(mean + k + pair), b1 = pack(mean + k + pair + 8);
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
            "%1, "
            "%2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a(group, pair)), "r"(a(group + 8, pair)), "r"(a(group, pair + 8)), "r"(a(group + 8, pair + 8)),
              "r"(b0), "r"(b1));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = group + i / 2 * 8, column = first + pair + i % 2;
        if (column < key_blocks_)
          keys_[row * sizes_.selectable_keys + column] = __float_as_uint(forced(column) ? -INFINITY : c[i] * p_.scale);
      }
    }
  }

  __device__ bool forced(int block) const {
    return buffers_.k_similarity != nullptr &&
           buffers_.k_similarity[static_cast<int64_t>(bh_) * sizes_.key_blocks + block] < choice_.similarity;
  }

  __device__ static uint32_t pack(const float* x) {
    const float2 two = *reinterpret_cast<const float2*>(x);
    const __nv_bfloat162 packed = __float22bfloat162_rn(two);
    return *reinterpret_cast<const uint32_t*>(&packed);
  }

  __device__ void choose(int tile, bool all) const {
    const int first = tile * p_.selection.rows;
    const int last = min(first + p_.selection.rows, video_part(p_.queries, p_.text_tokens)) - 1;
    const int visible = ceil_div(visible_keys(p_, count_, last), kRecord);
    // Under a causal mask the blocks on the diagonal are kept, so that no query loses its own key.
    const int diagonal = p_.causal ? max(0, visible_keys(p_, count_, first) - 1) / kRecord : visible;
    const Candidates candidates(keys_ + warp() * sizes_.selectable_keys,
                                all ? 0 : min(min(visible, diagonal), key_blocks_));
    const float open = all ? 0 : candidates.count_from(1);
    Cut cut{1, candidates.size()};
    if (open > 0 && choice_.kind == HeadChoice::Kind::topk) {
      const int wanted = max(1, static_cast<int>(floor(static_cast<double>(choice_.topk) * visible)));
      if (wanted < open) cut = cut_by_count(candidates, wanted, open);
    } else if (open > 0 && choice_.cdf < 1 && candidates.count_from(kNan) == 0) {
      cut = cut_by_mass(candidates, choice_.cdf);
    }
    write(tile, candidates, cut);
  }

  __device__ void write(int tile, const Candidates& candidates, Cut cut) const {
    uint32_t* row = buffers_.bitmap + (static_cast<int64_t>(bh_) * sizes_.selection_tiles + tile) * sizes_.map_words;
    int ties = 0;
    for (int word = 0; word < sizes_.map_words; ++word) {
      const int block = word * 32 + lane();
      const uint32_t key = candidates.key(block);
      const uint32_t tied = __ballot_sync(~0U, key != 0 && key == cut.threshold);
      const int rank = ties + __popc(tied & ((1U << lane()) - 1));
      ties += __popc(tied);
      const bool kept = key == 0 || key > cut.threshold || (key == cut.threshold && rank < cut.ties);
      const uint32_t bits = __ballot_sync(~0U, kept);
      if (lane() == 0) row[word] = bits;
    }
  }

  const Problem& p_;
  const Sizes& sizes_;
  const Buffers& buffers_;
  const int groups_, bh_, first_tile_;
  const HeadChoice choice_;
  const int count_, key_blocks_;
  uint32_t* const keys_;
};

template <int D>
__global__ void __launch_bounds__(kThreads, 3)
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
  if (call.sizes.D == 64) run(select<64>);
  if (call.sizes.D == 128) run(select<128>);
  if (call.sizes.D == 256) run(select<256>);
}

}  // namespace sparsereel::attention::cuda
