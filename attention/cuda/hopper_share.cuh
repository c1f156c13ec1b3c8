// The last query tiles in parts. When every multiprocessor has had equally many tiles, those that are left would keep
// some of them busy for a whole tile while the others idle. They are cut along their lists of keys instead, into equal
// shares for all multiprocessors; a share is part of one tile, or the end of one and the start of the next. Another
// kernel adds up the parts, always in the same order.
#pragma once

#include "attention/cuda/kernels.h"

namespace sparsereel::attention::cuda::hopper {

/// Lengths along the shared tiles are counted in 1 / processors of a tile: a share is shared_tiles long.
struct Part {
  int from, to;  // of its tile

  __device__ Part(const Sizes& sizes, int share, int tile)
      : from(max(share * sizes.shared_tiles - tile * sizes.processors, 0)),
        to(min((share + 1) * sizes.shared_tiles - tile * sizes.processors, sizes.processors)) {}

  /// The entry of a list of `length` where `at` lies; a stage of the pipeline belongs to one part.
  __device__ static int entry(const Sizes& sizes, int at, int length, int stage) {
    if (at == sizes.processors) return length;
    return static_cast<int>(static_cast<int64_t>(length) * at / sizes.processors / stage * stage);
  }
};

__device__ inline int first_tile_of(const Sizes& sizes, int share) {
  return share * sizes.shared_tiles / sizes.processors;
}
__device__ inline int last_tile_of(const Sizes& sizes, int share) {
  return ((share + 1) * sizes.shared_tiles - 1) / sizes.processors;
}
__device__ inline int first_share_of(const Sizes& sizes, int tile) {
  return tile * sizes.processors / sizes.shared_tiles;
}
__device__ inline int last_share_of(const Sizes& sizes, int tile) {
  return ((tile + 1) * sizes.processors - 1) / sizes.shared_tiles;
}

/// Where a share's part of a tile lies in memory: the parts of a tile lie side by side.
__device__ inline int slot_of(int share, int tile) {
  return share + tile;
}

/// Query tiles that are not shared; the shared ones follow.
__host__ __device__ inline int whole_tiles(const Sizes& sizes) {
  return sizes.batch_heads * sizes.query_tiles - sizes.shared_tiles;
}

}  // namespace sparsereel::attention::cuda::hopper
