// The last query tiles in parts. When every multiprocessor has had equally many tiles, those that are left would keep
// some of them busy for a whole tile while the others idle. They are cut along their lists of keys instead, into equal
// shares for all multiprocessors; a share is part of one tile, or the end of one and the start of the next. Another
// kernel adds up the parts, always in the same order.
#pragma once

#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

/// Entries [begin, end) of a tile's list.
struct Part {
  int begin, end;
};

/// `tiles` tiles, fewer than processors, in `processors` shares. Lengths are counted in 1 / processors of a tile: a
/// share is `tiles` long, and share i starts at i * tiles.
struct Shares {
  int processors;
  int tiles;

  SPARSEREEL_HOST_DEVICE constexpr int first_tile(int share) const { return share * tiles / processors; }
  SPARSEREEL_HOST_DEVICE constexpr int last_tile(int share) const { return ((share + 1) * tiles - 1) / processors; }

  /// A share's part of a tile that it touches, for a list of `length`. A stage of `stage` entries belongs to one part;
  /// parts of short lists may be empty.
  SPARSEREEL_HOST_DEVICE constexpr Part part(int share, int tile, int length, int stage) const {
    const int from = share * tiles - tile * processors, to = from + tiles;
    return {from <= 0 ? 0 : entry(from, length, stage), to >= processors ? length : entry(to, length, stage)};
  }

  /// Where a share's part of a tile lies in memory. The parts of a tile lie side by side: [first_slot, last_slot].
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
