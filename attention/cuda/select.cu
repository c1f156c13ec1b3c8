// Chooses the key blocks of each selection tile from pooled queries and keys (SpargeAttn, arXiv 2502.18137,
// section 3.2); the same rules as attention/cpu/selection.h. A CTA scores 16 tiles against all key blocks, then a warp
// chooses for one, and writes its list where that needs no more than the choice (Sizes::listed_tiles).
#include <cuda_bf16.h>

#include "attention/cuda/kernels.h"
#include "attention/cuda/selection_cut.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kTiles = 16;  // rows of the tensor core's m16n8k16
constexpr int kThreads = 32 * kTiles;

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
    __shared__ int kept;
    if (threadIdx.x == 0) kept = 0;
    const int tile = first_tile_ + warp();
    const bool diverse = tile < sizes_.selection_tiles && pool_queries(tile, queries + warp() * kStride);
    __syncthreads();
    if (choice_.kind != HeadChoice::Kind::dense) score(queries);
    __syncthreads();
    if (tile < sizes_.selection_tiles) choose(tile, diverse || choice_.kind == HeadChoice::Kind::dense, kept);
    if (p_.counts == nullptr) return;
    __syncthreads();
    if (threadIdx.x == 0)  // one for all its tiles: they would queue at this address
      atomicAdd(reinterpret_cast<unsigned long long*>(p_.counts), static_cast<unsigned long long>(kept));
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

  /// kept: of the CTA, in shared memory; grows by the 64 x 64 blocks of the list.
  __device__ void choose(int tile, bool all, int& kept) const {
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
    } else if (spread.count > 0 && choice_.cdf < 1) {
      cut = cut_by_mass(candidates, choice_.cdf);
    }
    if (tile < sizes_.listed_tiles) {
      const int blocks = write_list(tile, candidates, cut, visible);
      if (lane() == 0) atomicAdd(&kept, blocks);
    } else {
      write_bitmap(tile, candidates, cut);
    }
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

  /// Returns the 64 x 64 blocks in it.
  __device__ int write_list(int tile, const Candidates& candidates, Cut cut, int visible) const {
    const int64_t at = static_cast<int64_t>(bh_) * sizes_.query_tiles + tile;
    uint32_t* list = buffers_.lists + at * sizes_.key_blocks;
    const int groups = ceil_div(min(p_.selection.rows, p_.queries - tile * p_.selection.rows), kRecord);
    int length = 0;
    each_word(ceil_div(visible, 32), candidates, cut, [&](int word, uint32_t bits) {
      const int block = word * 32 + lane(), left = visible - word * 32;
      if (left < 32) bits &= (1U << left) - 1;
      if ((bits >> lane() & 1) != 0) list[length + __popc(bits & before())] = block | whole_for(groups);
      length += __popc(bits);
    });
    if (lane() == 0) {
      if (length == 0) list[0] = 0;  // kernels rely on one entry; this one covers no row
      buffers_.tile_lists[at] = {max(length, 1), length > 0 ? 1 : 0};
    }
    return length * groups;
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
