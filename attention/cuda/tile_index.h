// The order in which the Hopper kernel numbers query tiles.
#pragma once

#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

/// The numbers that TileIndex needs. query_tiles: tiles of a (batch, head). listed_tiles: how many of these, from the
/// first on, get their lists from the selection (Sizes). None of them has rows of text. Any struct with these fields
/// can be used, such as Sizes.
struct TileCounts {
  int batch_heads, query_tiles, listed_tiles;
};

/// A query tile, and its index among all tiles. Tiles of a head follow each other, because the head's K and V then stay
/// in the L2 cache. Inside a head, the tiles go from the last rows to the first, because late rows of a causal mask
/// have the longest lists. Tiles with text rows use every block and come before all others: if they started late,
/// everything would wait for them.
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

  /// Returns the index of this tile.
  template <typename Counts>
  SPARSEREEL_HOST_DEVICE constexpr int index(const Counts& counts) const {
    const int unlisted = counts.query_tiles - counts.listed_tiles;
    return tile < counts.listed_tiles
               ? unlisted * counts.batch_heads + bh * counts.listed_tiles + counts.listed_tiles - 1 - tile
               : bh * unlisted + counts.query_tiles - 1 - tile;
  }

  /// Returns the position of this tile's list among the lists of all tiles.
  template <typename Counts>
  SPARSEREEL_HOST_DEVICE constexpr int64_t list(const Counts& counts) const {
    return static_cast<int64_t>(bh) * counts.query_tiles + tile;
  }
};

}  // namespace sparsereel::attention::cuda
