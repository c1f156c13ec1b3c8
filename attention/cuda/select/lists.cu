// Turns the chosen blocks into lists: the key blocks that a query tile reads, and which of the tile's groups of 64 rows
// use each block. Rows of text, masks and a caller's map take effect here, so that every map is followed exactly.
// Entries of means for dropped blocks come last, when the maxima of the rows hardly rise any more.
#include "attention/cuda/kernels.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/tile_order.cuh"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;

/// Returns a mask of the lowest n bits; n may be negative or above 32.
__device__ uint32_t lowest_bits(int n) {
  return n >= 32 ? ~0U : n <= 0 ? 0U : (1U << n) - 1;
}

/// One group of 64 query rows of a tile. Its functions return words with a bit for each of 32 key blocks; each lane of
/// the warp handles one of these blocks.
class Group {
 public:
  __device__ Group(const KernelParams& p, const Sizes& sizes, const Buffers& buffers, int bh, int block)
      : exists_(block * kRecord < p.queries), key_blocks_(sizes.key_blocks) {
    const int first = block * kRecord, last = min(first + kRecord, p.queries) - 1, count = key_count(p, bh / p.heads);
    visible_ = exists_ ? ceil_div(visible_keys(p, count, last), kRecord) : 0;
    whole_ = p.causal ? max(0, first + p.keys - p.queries + 1) / kRecord : sizes.key_blocks;
    with_means_ = exists_ ? min(whole_, blocks_with_means(count, video_part(p.keys, p.text_tokens))) : 0;
    if (!exists_) return;
    if (p.selection.kind == Selection::Kind::map)
      map_ = p.selection.map +
             (static_cast<int64_t>(bh) * ceil_div(p.queries, p.selection.map_rows) + first / p.selection.map_rows) *
                 sizes.key_blocks;
    if (p.selection.kind == Selection::Kind::predict && first < video_part(p.queries, p.text_tokens))
      bitmap_ = buffers.bitmap +
                (static_cast<int64_t>(bh) * sizes.selection_tiles + first / p.selection.rows) * sizes.map_words;
  }

  __device__ bool exists() const { return exists_; }

  /// Reads the words [first, first + 32) of the bitmap of kept blocks, one per lane.
  __device__ void fetch(int first, int words) {
    const int word = first + static_cast<int>(threadIdx.x) % 32;
    if (bitmap_ != nullptr && word < words) fetched_ = bitmap_[word];
  }

  /// Returns the blocks of a word that the group computes. The last fetch() must have read this word.
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

  /// Returns the blocks of a word that the group does not compute and that means replace.
  __device__ uint32_t dropped(int word) const { return ~used(word) & lowest_bits(with_means_ - word * 32); }

  /// Returns the blocks of a word in which the causal mask hides some keys from some rows.
  __device__ uint32_t masked(int word) const { return ~lowest_bits(whole_ - word * 32); }

 private:
  const bool exists_;
  const int key_blocks_;
  int visible_;     // number of key blocks that the last row sees
  int whole_;       // every row sees every key of the first whole_ key blocks
  int with_means_;  // the first with_means_ key blocks have means
  const uint8_t* map_ = nullptr;
  const uint32_t* bitmap_ = nullptr;
  uint32_t fetched_ = 0;
};

/// Calls f(word) for each word of 32 key blocks. Before that, the groups fetch the bits.
template <int kGroups, typename F>
__device__ void each_word(const Sizes& sizes, Group (&groups)[3], const F& f) {
  for (int word = 0; word < sizes.map_words; ++word) {
    if (word % 32 == 0) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) groups[g].fetch(word, sizes.map_words);
    }
    f(word);
  }
}

/// Writes the entries of means: for each record of means, one entry if all groups drop the same of its blocks,
/// otherwise one for each group that drops any. Returns the number of entries written. blocks: raised by the cost of
/// these means (Found::means). plain: set to false if an entry is not for all groups; see TileList.
template <int kGroups>
__device__ int list_means(const Sizes& sizes, Group (&groups)[3], uint32_t* list, int& blocks, bool& plain) {
  const bool writes = threadIdx.x % 32 == 0;
  int length = 0;
  each_word<kGroups>(sizes, groups, [&](int word) {
    uint32_t dropped[kGroups], any = 0, all = ~0U;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      dropped[g] = groups[g].dropped(word);
      any |= dropped[g];
      if (groups[g].exists()) all &= dropped[g];
    }
    for (int half = 0; half < 2; ++half) {
      const uint32_t bits = any >> kMeanBlocks * half & 0xFFFF;
      const int index = 2 * word + half;
      const bool alike = bits == (all >> kMeanBlocks * half & 0xFFFF);
      uint32_t covers = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const uint32_t its = dropped[g] >> kMeanBlocks * half & 0xFFFF, cover = 1U << (kBlockBits + 2 * g);
        if (its == 0) continue;
        ++blocks;
        covers |= cover;
        if (!alike && writes) list[length] = mean_entry(index, its, cover);
        if (!alike) ++length;
      }
      plain = plain && (alike || bits == 0);
      if (!alike || bits == 0) continue;
      if (writes) list[length] = mean_entry(index, bits, covers);
      ++length;
    }
  });
  return length;
}

/// Writes the list of one query tile. One warp calls it.
template <int kGroups>
__device__ Found build_list(const KernelParams& p, const Sizes& sizes, const Buffers& buffers, int bh, int tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto group = [&](int g) { return Group(p, sizes, buffers, bh, tile * kGroups + g); };
  Group groups[3] = {group(0), group(kGroups > 1 ? 1 : 0), group(kGroups > 2 ? 2 : 0)};
  const int64_t at = static_cast<int64_t>(bh) * sizes.query_tiles + tile;
  uint32_t* list = buffers.lists + at * sizes.list_entries;
  Found found = {};
  bool plain = true;  // see TileList::plain
  int length = 0;
  each_word<kGroups>(sizes, groups, [&](int word) {
    uint32_t used[kGroups], any = 0, entry = static_cast<uint32_t>(word * 32 + lane);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      used[g] = groups[g].used(word);
      any |= used[g];
      found.kept += __popc(used[g]);
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
  });
  const int means = sizes.mean_records == 0 ? 0 : list_means<kGroups>(sizes, groups, list + length, found.means, plain);
  length += means;
  if (lane == 0) {
    if (length == 0) list[0] = 0;  // kernels need at least one entry; no row uses this one
    put_tile(sizes, buffers, bh, tile, {max(length, 1), plain && length > 0, means});
  }
  return found;
}

template <int kGroups>
__global__ void __launch_bounds__(kThreads)
    build_lists(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                const __grid_constant__ Buffers buffers) {
  __shared__ Found all;
  if (threadIdx.x == 0) all = {};
  __syncthreads();
  const int index = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
  const int unlisted = sizes.query_tiles - sizes.listed_tiles, bh = index / unlisted;
  Found found = {};
  if (bh < sizes.batch_heads) found = build_list<kGroups>(p, sizes, buffers, bh, sizes.listed_tiles + index % unlisted);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&all.kept, found.kept);
    atomicAdd(&all.means, found.means);
  }
  __syncthreads();
  // One thread adds the counts of all tiles of the CTA, so that fewer threads wait for these addresses.
  if (threadIdx.x == 0) {
    count(p, kCountKept, all.kept);
    count(p, kCountMeans, all.means);
  }
}

}  // namespace

void launch_lists(const LaunchContext& context) {
  const int64_t tiles =
      static_cast<int64_t>(context.sizes.batch_heads) * (context.sizes.query_tiles - context.sizes.listed_tiles);
  if (tiles == 0) return;
  const unsigned grid = static_cast<unsigned>((tiles * 32 + kThreads - 1) / kThreads);
  context.start(context.kernel.tile_rows == 3 * kRecord ? build_lists<3> : build_lists<2>, grid, kThreads);
}

}  // namespace sparsereel::attention::cuda
