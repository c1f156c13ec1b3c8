// Splits the last query tiles into parts. When every multiprocessor has had the same number of tiles, fewer tiles than
// multiprocessors may remain. These would keep some multiprocessors busy for a whole tile while the others idle. So the
// lists of the remaining tiles are cut into equal shares, one for each multiprocessor. A share is part of one tile, or
// the end of one tile and the start of the next. A second kernel adds up the parts of each tile, always in the same
// order.
#pragma once

#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

/// The entries [begin, end) of a tile's list.
struct ListRange {
  int begin, end;
};

/// Splits `tiles` tiles, fewer than `processors`, into `processors` shares. A tile counts as `processors` units long,
/// so a share is `tiles` units long, and share i starts at unit i * tiles.
struct Shares {
  int processors;
  int tiles;

  SPARSEREEL_HOST_DEVICE constexpr int first_tile(int share) const { return share * tiles / processors; }
  SPARSEREEL_HOST_DEVICE constexpr int last_tile(int share) const { return ((share + 1) * tiles - 1) / processors; }

  /// Returns the part of a tile that belongs to a share, as a range of the `length` entries of the tile's list. The
  /// kernel loads `stage` entries at a time (a stage), so parts begin at multiples of `stage`. Parts of short lists may
  /// be empty.
  SPARSEREEL_HOST_DEVICE constexpr ListRange part(int share, int tile, int length, int stage) const {
    const int from = share * tiles - tile * processors, to = from + tiles;
    return {from <= 0 ? 0 : entry(from, length, stage), to >= processors ? length : entry(to, length, stage)};
  }

  /// slot() returns the index of the memory for a share's part of a tile. The parts of a tile are in the slots
  /// first_slot() to last_slot().
  SPARSEREEL_HOST_DEVICE static constexpr int slot(int share, int tile) { return share + tile; }
  SPARSEREEL_HOST_DEVICE constexpr int first_slot(int tile) const { return slot(tile * processors / tiles, tile); }
  SPARSEREEL_HOST_DEVICE constexpr int last_slot(int tile) const {
    return slot(((tile + 1) * processors - 1) / tiles, tile);
  }
  SPARSEREEL_HOST_DEVICE constexpr int slots() const { return processors + tiles - 1; }

 private:
  SPARSEREEL_HOST_DEVICE constexpr int entry(int at, int length, int stage) const {
    return static_cast<int>(static_cast<int64_t>(length) * at / processors / stage * stage);
  }
};

}  // namespace sparsereel::attention::cuda
