// Chooses the key blocks of each selection tile from pooled queries and keys (SpargeAttn, arXiv 2502.18137,
// section 3.2); the same rules as attention/cpu/selection.h. A CTA scores 16 tiles against all key blocks, then a warp
// chooses for one.
#include <cuda_bf16.h>

#include <cmath>

#include "attention/cuda/kernels.h"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kTiles = 16;  // rows of the tensor core's m16n8k16
constexpr int kThreads = 32 * kTiles;

/// Unsigned integers in the order of the floats; NaN above all. 0 is free to mean "no candidate".
__device__ uint32_t ordered(float x) {
  if (isnan(x)) return ~0U;
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

__device__ float from_ordered(uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key);
}

__device__ float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0U, x, lanes);
  return x;
}

/// Candidates of one tile: keys in shared or global memory, read by one warp.
struct Candidates {
  const uint32_t* keys;
  int count;

  template <typename F>
  __device__ void each(const F& f) const {
#pragma unroll 4
    for (int j = static_cast<int>(threadIdx.x) % 32; j < count; j += 32) f(keys[j]);
  }

  __device__ int count_from(uint32_t threshold) const {
    int found = 0;
    each([&](uint32_t key) { found += key >= threshold ? 1 : 0; });
    return __reduce_add_sync(~0U, found);
  }

  __device__ uint32_t largest() const {
    uint32_t most = 0;
    each([&](uint32_t key) { most = max(most, key); });
    return __reduce_max_sync(~0U, most);
  }

  /// Sum of exp(score - top) over the candidates from a threshold on.
  __device__ float mass_from(uint32_t threshold, float top) const {
    float mass = 0;
    each([&](uint32_t key) { mass += key >= threshold ? __expf(from_ordered(key) - top) : 0.0F; });
    return warp_sum(mass);
  }
};

/// Every candidate above `threshold` is kept, and the first `ties` of those equal to it.
struct Cut {
  uint32_t threshold;
  int ties;
};

/// The largest threshold for which enough(threshold) holds; it must hold for 1.
template <typename F>
__device__ uint32_t bisect(const F& enough) {
  uint32_t threshold = 0;
  for (uint32_t bit = 0x80000000U; bit != 0; bit >>= 1)
    if (enough(threshold | bit)) threshold |= bit;
  return threshold;
}

__device__ Cut cut_by_count(const Candidates& candidates, int wanted) {
  uint32_t threshold = 0;
  for (uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    const int count = candidates.count_from(threshold | bit);
    if (count >= wanted) threshold |= bit;
    if (count == wanted) return {threshold, candidates.count};  // the usual way out: no ties to break
  }
  return {threshold, threshold == ~0U ? wanted : wanted - candidates.count_from(threshold + 1)};
}

__device__ Cut cut_by_mass(const Candidates& candidates, float share) {
  const float top = from_ordered(candidates.largest());
  if (isnan(top)) return {1, candidates.count};
  const float wanted = share * candidates.mass_from(1, top);
  const uint32_t threshold = bisect([&](uint32_t t) { return candidates.mass_from(t, top) >= wanted; });
  const float missing = wanted - candidates.mass_from(threshold + 1, top);
  return {threshold, max(1, static_cast<int>(ceilf(missing / __expf(from_ordered(threshold) - top))))};
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
    __shared__ __align__(16) __nv_bfloat16 queries[kTiles * kStride];
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

  /// keys_[tile][block] for the 16 tiles; 0 where a block is forced. The order of the depth is free as long as both
  /// sides agree, so a lane takes 8 consecutive elements of every 32 for two multiplications.
  __device__ void score(const __nv_bfloat16* queries) const {
    const int group = lane() / 4, part = lane() % 4 * 8;
    uint4 low[D / 32], high[D / 32];  // rows `group` and `group + 8` of the 16 tiles
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      low[k] = *reinterpret_cast<const uint4*>(queries + group * kStride + k * 32 + part);
      high[k] = *reinterpret_cast<const uint4*>(queries + (group + 8) * kStride + k * 32 + part);
    }
    const uint16_t* means = buffers_.k_mean + static_cast<int64_t>(bh_) * sizes_.key_blocks * D + part;
#pragma unroll 2
    for (int first = warp() * 8; first < key_blocks_; first += kTiles * 8) {
      const uint16_t* mean = means + static_cast<int64_t>(min(first + group, key_blocks_ - 1)) * D;
      uint4 keys[D / 32];
#pragma unroll
      for (int k = 0; k < D / 32; ++k) keys[k] = __ldg(reinterpret_cast<const uint4*>(mean + k * 32));
      float c[4] = {};
#pragma unroll
      for (int k = 0; k < D / 32; ++k) {
        multiply(c, low[k].x, high[k].x, low[k].y, high[k].y, keys[k].x, keys[k].y);
        multiply(c, low[k].z, high[k].z, low[k].w, high[k].w, keys[k].z, keys[k].w);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = group + i / 2 * 8, column = first + lane() % 4 * 2 + i % 2;
        if (column < key_blocks_)
          keys_[row * sizes_.selectable_keys + column] = forced(column) ? 0 : ordered(c[i] * p_.scale);
      }
    }
  }

  __device__ static void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                  uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }

  __device__ bool forced(int block) const {
    return buffers_.k_similarity != nullptr &&
           buffers_.k_similarity[static_cast<int64_t>(bh_) * sizes_.key_blocks + block] < choice_.similarity;
  }

  __device__ void choose(int tile, bool all) const {
    const int first = tile * p_.selection.rows;
    const int last = min(first + p_.selection.rows, video_part(p_.queries, p_.text_tokens)) - 1;
    const int visible = ceil_div(visible_keys(p_, count_, last), kRecord);
    // Under a causal mask the blocks on the diagonal are kept, so that no query loses its own key.
    const int diagonal = p_.causal ? max(0, visible_keys(p_, count_, first) - 1) / kRecord : visible;
    const Candidates candidates{keys_ + warp() * sizes_.selectable_keys,
                                all ? 0 : min(min(visible, diagonal), key_blocks_)};
    const int open = all ? 0 : candidates.count_from(1);
    Cut cut{1, 0};
    if (open > 0 && choice_.kind == HeadChoice::Kind::topk) {
      const int wanted = max(1, static_cast<int>(floor(static_cast<double>(choice_.topk) * visible)));
      if (wanted < open) cut = cut_by_count(candidates, wanted);
    } else if (open > 0 && choice_.cdf < 1) {
      cut = cut_by_mass(candidates, choice_.cdf);
    }
    write(tile, candidates, cut);
  }

  __device__ void write(int tile, const Candidates& candidates, Cut cut) const {
    uint32_t* row = buffers_.bitmap + (static_cast<int64_t>(bh_) * sizes_.selection_tiles + tile) * sizes_.map_words;
    int ties = 0;
    for (int word = 0; word < sizes_.map_words; ++word) {
      const int block = word * 32 + lane();
      const uint32_t key = block < candidates.count ? candidates.keys[block] : 0;
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
  if (call.sizes.D == 64) run(select<64>);
  if (call.sizes.D == 128) run(select<128>);
  if (call.sizes.D == 256) run(select<256>);
}

}  // namespace sparsereel::attention::cuda
