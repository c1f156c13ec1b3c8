// Turns the choice of blocks into lists: which key blocks a tile of queries reads, and which of its groups of 64 rows
// use each. Text rows, masks and a caller's map are applied here, so that every map is obeyed exactly.
#include "attention/cuda/kernels.h"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;

/// The lowest n bits, for any n.
__device__ uint32_t lowest_bits(int n) {
  return n >= 32 ? ~0U : n <= 0 ? 0U : (1U << n) - 1;
}

/// One group of 64 query rows. A word stands for 32 key blocks; the warp's lanes hold one block each.
class Group {
 public:
  __device__ Group(const Problem& p, const Sizes& sizes, const Buffers& buffers, int bh, int block)
      : exists_(block * kRecord < p.queries), key_blocks_(sizes.key_blocks) {
    const int first = block * kRecord, last = min(first + kRecord, p.queries) - 1, count = key_count(p, bh / p.heads);
    visible_ = exists_ ? ceil_div(visible_keys(p, count, last), kRecord) : 0;
    whole_ = p.causal ? max(0, first + p.keys - p.queries + 1) / kRecord : sizes.key_blocks;
    if (!exists_) return;
    if (p.selection.kind == Selection::Kind::map)
      map_ = p.selection.map + (static_cast<int64_t>(bh) * ceil_div(p.queries, kRecord) + block) * sizes.key_blocks;
    if (p.selection.kind == Selection::Kind::predict && first < video_part(p.queries, p.text_tokens))
      bitmap_ = buffers.bitmap +
                (static_cast<int64_t>(bh) * sizes.selection_tiles + first / p.selection.rows) * sizes.map_words;
  }

  __device__ bool exists() const { return exists_; }

  /// Reads the bitmap's words [first, first + 32), one a lane.
  __device__ void fetch(int first, int words) {
    const int word = first + static_cast<int>(threadIdx.x) % 32;
    if (bitmap_ != nullptr && word < words) fetched_ = bitmap_[word];
  }

  /// Blocks that the group computes; word: of those fetched last.
  __device__ uint32_t used(int word) const {
    uint32_t bits = ~0U;
    if (map_ != nullptr) {
      const int block = word * 32 + static_cast<int>(threadIdx.x) % 32;
      bits = __ballot_sync(~0U, block < key_blocks_ && map_[block] != 0);
    } else if (bitmap_ != nullptr) {
      bits = __shfl_sync(~0U, fetched_, word % 32);
    }
    return bits & lowest_bits(visible_ - word * 32);
  }

  /// Blocks of which the causal mask hides some keys from some rows.
  __device__ uint32_t masked(int word) const { return ~lowest_bits(whole_ - word * 32); }

 private:
  const bool exists_;
  const int key_blocks_;
  int visible_;  // key blocks that the last row sees
  int whole_;    // key blocks that every row sees as a whole, as far as the causal mask goes
  const uint8_t* map_ = nullptr;
  const uint32_t* bitmap_ = nullptr;
  uint32_t fetched_ = 0;
};

/// One warp writes the list of one query tile; returns the 64 x 64 blocks in it.
template <int kGroups>
__device__ int build_list(const Problem& p, const Sizes& sizes, const Buffers& buffers, int bh, int tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto group = [&](int g) { return Group(p, sizes, buffers, bh, tile * kGroups + g); };
  Group groups[3] = {group(0), group(kGroups > 1 ? 1 : 0), group(kGroups > 2 ? 2 : 0)};
  const int64_t at = static_cast<int64_t>(bh) * sizes.query_tiles + tile;
  uint32_t* list = buffers.lists + at * sizes.key_blocks;
  int length = 0, kept = 0;
  bool plain = true;  // every group that has queries uses every entry as a whole
  for (int word = 0; word < sizes.map_words; ++word) {
    if (word % 32 == 0) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) groups[g].fetch(word, sizes.map_words);
    }
    uint32_t used[kGroups], any = 0, entry = static_cast<uint32_t>(word * 32 + lane);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      used[g] = groups[g].used(word);
      any |= used[g];
      kept += __popc(used[g]);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const uint32_t masked = used[g] & groups[g].masked(word);
      plain = plain && (!groups[g].exists() || (used[g] == any && masked == 0));
      const Cover cover = (masked >> lane & 1) != 0 ? Cover::causal : Cover::whole;
      if ((used[g] >> lane & 1) != 0) entry |= static_cast<uint32_t>(cover) << (kBlockBits + 2 * g);
    }
    if ((any >> lane & 1) != 0) list[length + __popc(any & lowest_bits(lane))] = entry;
    length += __popc(any);
  }
  if (lane == 0) {
    if (length == 0) list[0] = 0;  // kernels rely on one entry; this one covers no row
    buffers.tile_lists[at] = {max(length, 1), plain && length > 0};
  }
  return kept;
}

template <int kGroups>
__global__ void __launch_bounds__(kThreads)
    build_lists(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                const __grid_constant__ Buffers buffers) {
  __shared__ int kept;
  if (threadIdx.x == 0) kept = 0;
  __syncthreads();
  const int index = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
  const int unlisted = sizes.query_tiles - sizes.listed_tiles, bh = index / unlisted;
  const int found =
      bh < sizes.batch_heads ? build_list<kGroups>(p, sizes, buffers, bh, sizes.listed_tiles + index % unlisted) : 0;
  if (threadIdx.x % 32 == 0) atomicAdd(&kept, found);
  __syncthreads();
  if (threadIdx.x == 0 && p.counts != nullptr)  // one for all its tiles: they would queue at this address
    atomicAdd(reinterpret_cast<unsigned long long*>(p.counts), static_cast<unsigned long long>(kept));
}

}  // namespace

void launch_lists(const Call& call, int tile_rows) {
  const int64_t tiles =
      static_cast<int64_t>(call.sizes.batch_heads) * (call.sizes.query_tiles - call.sizes.listed_tiles);
  if (tiles == 0) return;
  const unsigned grid = static_cast<unsigned>((tiles * 32 + kThreads - 1) / kThreads);
  if (tile_rows == 3 * kRecord) {
    build_lists<3><<<grid, kThreads, 0, call.stream>>>(call.problem, call.sizes, call.buffers);
  } else {
    build_lists<2><<<grid, kThreads, 0, call.stream>>>(call.problem, call.sizes, call.buffers);
  }
}

}  // namespace sparsereel::attention::cuda
