// The order in which the Hopper kernel numbers query tiles.
#pragma once

#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

/// Tiles of a (batch, head), and how many of them, from the first on, have no rows of text; any struct with these
/// fields serves, Sizes among them.
struct TileCounts {
  int batch_heads, query_tiles, listed_tiles;
};

/// Query tile `index` of all: heads in order, since a head's K and V stay in the L2 cache; inside a head from the last
/// rows up, since the late rows of a causal mask have the longest lists. Tiles with text rows, which use every block
/// where others use a few, come before all others: started late they would be what everything waits for.
struct TileIndex {
  int bh, tile;

  SPARSEREEL_HOST_DEVICE constexpr TileIndex(int head, int tile_of_head) : bh(head), tile(tile_of_head) {}

  template <typename Counts>
  SPARSEREEL_HOST_DEVICE constexpr TileIndex(const Counts& counts, int index) : bh(0), tile(0) {
    int tiles = counts.query_tiles - counts.listed_tiles, last = counts.query_tiles - 1;
    if (const int first = tiles * counts.batch_heads; index >= first) {
      index -= first;
      tiles = counts.listed_tiles;
      last = tiles - 1;
    }
    bh = index / tiles;
    tile = last - index % tiles;
  }

  /// The index that makes this tile.
  template <typename Counts>
  SPARSEREEL_HOST_DEVICE constexpr int index(const Counts& counts) const {
    const int unlisted = counts.query_tiles - counts.listed_tiles;
    return tile < counts.listed_tiles
               ? unlisted * counts.batch_heads + bh * counts.listed_tiles + counts.listed_tiles - 1 - tile
               : bh * unlisted + counts.query_tiles - 1 - tile;
  }

  /// Where its list stands among those of all tiles.
  template <typename Counts>
  SPARSEREEL_HOST_DEVICE constexpr int64_t list(const Counts& counts) const {
    return static_cast<int64_t>(bh) * counts.query_tiles + tile;
  }
};

}  // namespace sparsereel::attention::cuda
