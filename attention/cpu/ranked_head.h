// One head's key blocks, ranked for each tile of queries: what blocks are chosen from.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cpu/mean_error.h"
#include "attention/cpu/problem.h"
#include "attention/cpu/selector.h"

namespace sparsereel::attention::cpu {

/// The video queries of one head in tiles against its blocks of video keys. A dense head has no tiles.
struct RankedHead {
  int64_t b = 0, h = 0;
  int64_t rows = 0, queries = 0;      // of a tile, of video
  TileScores rank{};                  // kUnseen: no candidate, which forced ones are not either
  std::vector<double> error{};        // MeanErrors::error; empty where blocks are ranked by mass
  std::vector<float> tile_lengths{};  // MeanErrors::tile_lengths, and
  double output_length = 0;           // their mean
  std::vector<int64_t> visible{};     // [tiles], key blocks that each tile sees, text's included
  std::vector<uint8_t> dense{};       // [tiles], 1: too diverse to be pooled, so without candidates
  std::vector<uint8_t> kept{};        // [tiles, blocks], 0: a candidate not chosen (yet)

  int64_t tiles() const { return rank.tiles; }
  uint8_t* kept_row(int64_t tile) { return kept.data() + tile * rank.blocks; }
  const uint8_t* kept_row(int64_t tile) const { return kept.data() + tile * rank.blocks; }
  bool is_candidate(int64_t tile, int64_t block) const;
  /// The blocks that `topk` grants a tile: max(1, floor(topk * visible blocks)).
  int64_t granted(int64_t tile, double topk) const;
  /// Sum over the tiles of the errors predicted for the blocks that they drop, over output_length.
  double dropped_error() const;
};

/// Nothing is chosen yet.
RankedHead rank_head(const Problem& problem, const Selector& selector, int64_t b, int64_t h);

}  // namespace sparsereel::attention::cpu
