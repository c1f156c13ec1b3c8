// One head's key blocks, ranked for each query tile, from which the blocks to compute are chosen.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cpu/kernel_params.h"
#include "attention/cpu/mean_error.h"
#include "attention/cpu/selector.h"

namespace sparsereel::attention::cpu {

/// The video queries of one head, in tiles, and its blocks of video keys. A dense head has no tiles.
struct RankedHead {
  int64_t b = 0, h = 0;
  int64_t rows = 0, queries = 0;      // queries per tile; number of video queries
  TileScores rank{};                  // kUnseen if the block is not a candidate, for example because it is forced
  std::vector<double> error{};        // MeanErrors::error; empty if blocks are ranked by mass
  std::vector<float> tile_lengths{};  // MeanErrors::tile_lengths
  double output_length = 0;           // mean of tile_lengths
  std::vector<int64_t> visible{};     // [tiles], number of key blocks that each tile sees, text included
  std::vector<uint8_t> dense{};       // [tiles], 1 if the tile is too diverse to be pooled, so it has no candidates
  std::vector<uint8_t> kept{};        // [tiles, blocks], 0 for a candidate that is not chosen (yet)

  int64_t tiles() const { return rank.tiles; }
  uint8_t* kept_row(int64_t tile) { return kept.data() + tile * rank.blocks; }
  const uint8_t* kept_row(int64_t tile) const { return kept.data() + tile * rank.blocks; }
  bool is_candidate(int64_t tile, int64_t block) const;
  /// Returns the number of blocks that `topk` grants a tile: max(1, floor(topk * visible blocks)).
  int64_t granted(int64_t tile, double topk) const;
  /// Returns the sum over the tiles of the predicted errors of their dropped blocks, divided by output_length.
  double dropped_error() const;
};

/// Ranks the blocks of head (b, h). Nothing is chosen yet.
RankedHead rank_head(const KernelParams& params, const Selector& selector, int64_t b, int64_t h);

}  // namespace sparsereel::attention::cpu
