// The order in which the Hopper kernel takes its last tiles: tiles with the longest lists first, so that no
// multiprocessor starts a long tile when the others have finished. Earlier tiles keep the order of TileIndex, in which
// tiles that run together share K and V in the L2 cache.
#pragma once

#include "attention/cuda/scratch.h"
#include "attention/cuda/tile_index.h"

namespace sparsereel::attention::cuda {

/// Stores the facts about a tile's list, and puts the tile into the order. One thread calls it for each tile. Tiles
/// with lists of similar lengths (a class) are in the order of these calls; no result depends on that.
__device__ inline void put_tile(const Sizes& sizes, const Buffers& buffers, int bh, int tile, const TileList& list) {
  const TileIndex which(bh, tile);
  const int index = which.index(sizes), place = index - (sizes.whole_tiles - sizes.sorted_tiles);
  buffers.tile_lists[which.list(sizes)] = list;
  if (place < 0 || place >= sizes.sorted_tiles) return;
  const int shortness = (sizes.list_entries - list.length) * kLengthClasses / sizes.list_entries;
  const int length_class = min(max(shortness, 0), kLengthClasses - 1);
  const int at = atomicAdd(buffers.class_counts + length_class, 1);
  buffers.tile_order[length_class * sizes.sorted_tiles + at] = index;
}

/// Returns the index (TileIndex) of the tile that runs at position `index`.
__device__ inline int tile_at(const Sizes& sizes, const Buffers& buffers, int index) {
  int place = index - (sizes.whole_tiles - sizes.sorted_tiles);
  if (place < 0) return index;
#pragma unroll
  for (int length_class = 0; length_class < kLengthClasses; ++length_class) {
    const int count = buffers.class_counts[length_class];
    if (place < count) return buffers.tile_order[length_class * sizes.sorted_tiles + place];
    place -= count;
  }
  return index;
}

}  // namespace sparsereel::attention::cuda
