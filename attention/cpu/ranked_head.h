// One head's key blocks, ranked for each query tile. A candidate is a block that the selection may keep or drop. A
// forced block is always kept, so it is not a candidate (selection.h says which blocks are forced).
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cpu/kernel_params.h"
#include "attention/cpu/mean_error.h"
#include "attention/cpu/selector.h"

namespace sparsereel::attention::cpu {

/// The video queries of one head, in tiles, and the blocks of its video keys. A head whose policy is dense has no
/// tiles.
struct RankedHead {
  int64_t b = 0, h = 0;
  int64_t rows = 0, queries = 0;      // queries per tile; number of video queries
  TileScores rank{};                  // the higher, the more a block matters; kUnseen if the block is not a candidate
  std::vector<double> error{};        // MeanErrors::error; empty if blocks are ranked by mass
  std::vector<float> tile_lengths{};  // MeanErrors::tile_lengths
  double output_length = 0;           // mean of tile_lengths
  std::vector<int64_t> visible{};     // [tiles], number of key blocks that each tile sees, text included
  std::vector<uint8_t> dense{};  // [tiles], 1 if the queries differ too much for one mean; the tile keeps all blocks
  std::vector<uint8_t> kept{};   // [tiles, blocks], 1 to compute the block, 0 for a candidate not (or not yet) chosen

  int64_t tiles() const { return rank.tiles; }
  uint8_t* kept_row(int64_t tile) { return kept.data() + tile * rank.blocks; }
  const uint8_t* kept_row(int64_t tile) const { return kept.data() + tile * rank.blocks; }
  bool is_candidate(int64_t tile, int64_t block) const;
  /// Returns the number of blocks that `topk` grants a tile: max(1, floor(topk * visible blocks)).
  int64_t granted(int64_t tile, double topk) const;
  /// Returns the sum over the tiles of the predicted errors of their dropped blocks, divided by output_length.
  double dropped_error() const;
};

/// Ranks the blocks of head (b, h). The result has no chosen blocks yet.
RankedHead rank_head(const KernelParams& params, const Selector& selector, int64_t b, int64_t h);

}  // namespace sparsereel::attention::cpu
