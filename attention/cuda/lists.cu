// Turns the choice of blocks into lists: which key blocks a tile of queries reads, and which of its groups of 64 rows
// use each. Text rows, masks and a caller's map are applied here, so that every map is obeyed exactly.
#include "attention/cuda/kernels.h"
#include "attention/cuda/visible.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;

/// One group of 64 query rows.
class Group {
 public:
  __device__ Group(const Problem& p, const Sizes& sizes, const Buffers& buffers, int bh, int block)
      : kind_(p.selection.kind), first_query_(block * kRecord), exists_(first_query_ < p.queries) {
    const int last = min(first_query_ + kRecord, p.queries) - 1, count = key_count(p, bh / p.heads);
    visible_ = exists_ ? visible_keys(p, count, last) : 0;
    sees_whole_ = p.causal ? first_query_ + p.keys - p.queries + 1 : p.keys + kRecord;
    if (kind_ == Selection::Kind::map)
      map_ = p.selection.map + (static_cast<int64_t>(bh) * ceil_div(p.queries, kRecord) + block) * sizes.key_blocks;
    if (kind_ == Selection::Kind::predict && first_query_ < video_part(p.queries, p.text_tokens))
      bitmap_ = buffers.bitmap +
                (static_cast<int64_t>(bh) * sizes.selection_tiles + first_query_ / p.selection.rows) * sizes.map_words;
  }

  __device__ bool exists() const { return exists_; }

  __device__ Cover cover(int key_block) const {
    if (key_block * kRecord >= visible_) return Cover::none;
    if (map_ != nullptr && map_[key_block] == 0) return Cover::none;
    if (bitmap_ != nullptr && (bitmap_[key_block / 32] >> key_block % 32 & 1) == 0) return Cover::none;
    return (key_block + 1) * kRecord > sees_whole_ ? Cover::causal : Cover::whole;
  }

 private:
  const Selection::Kind kind_;
  const int first_query_;
  const bool exists_;
  int visible_;     // keys that the last row sees
  int sees_whole_;  // keys that the causal mask leaves to the first row
  const uint8_t* map_ = nullptr;
  const uint32_t* bitmap_ = nullptr;
};

/// A warp a query tile.
template <int kGroups>
__global__ void __launch_bounds__(kThreads)
    build_lists(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                const __grid_constant__ Buffers buffers) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *buffers.next_tile = 0;
  const int lane = threadIdx.x % 32;
  const int64_t tile = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (tile >= static_cast<int64_t>(sizes.batch_heads) * sizes.query_tiles) return;
  const int bh = static_cast<int>(tile / sizes.query_tiles), index = static_cast<int>(tile % sizes.query_tiles);
  const auto group = [&](int g) { return Group(p, sizes, buffers, bh, index * kGroups + g); };
  const Group groups[3] = {group(0), group(kGroups > 1 ? 1 : 0), group(kGroups > 2 ? 2 : 0)};
  uint32_t* list = buffers.lists + tile * sizes.key_blocks;
  int length = 0, kept = 0;
  bool plain = true;  // every group that has queries uses every entry as a whole
  for (int first = 0; first < sizes.key_blocks; first += 32) {
    const int block = first + lane;
    uint32_t entry = static_cast<uint32_t>(block);
    bool uneven = false;
    for (int g = 0; g < kGroups && block < sizes.key_blocks; ++g) {
      const Cover cover = groups[g].cover(block);
      entry |= static_cast<uint32_t>(cover) << (kBlockBits + 2 * g);
      kept += cover == Cover::none ? 0 : 1;
      uneven |= groups[g].exists() && cover != Cover::whole;
    }
    const bool used = entry >> kBlockBits != 0;
    plain &= !(used && uneven);
    const uint32_t all = __ballot_sync(~0U, used);
    if (used) list[length + __popc(all & ((1U << lane) - 1))] = entry;
    length += __popc(all);
  }
  kept = __reduce_add_sync(~0U, kept);
  plain = __all_sync(~0U, plain) && length > 0;
  if (lane != 0) return;
  if (length == 0) list[length++] = 0;  // kernels rely on one entry; this one covers no row
  buffers.tile_lists[tile] = {length, plain};
  if (p.counts != nullptr)
    atomicAdd(reinterpret_cast<unsigned long long*>(p.counts), static_cast<unsigned long long>(kept));
}

}  // namespace

void launch_lists(const Call& call, int tile_rows) {
  const int64_t tiles = static_cast<int64_t>(call.sizes.batch_heads) * call.sizes.query_tiles;
  const unsigned grid = static_cast<unsigned>((tiles * 32 + kThreads - 1) / kThreads);
  if (tile_rows == 3 * kRecord) {
    build_lists<3><<<grid, kThreads, 0, call.stream>>>(call.problem, call.sizes, call.buffers);
  } else {
    build_lists<2><<<grid, kThreads, 0, call.stream>>>(call.problem, call.sizes, call.buffers);
  }
}

}  // namespace sparsereel::attention::cuda
