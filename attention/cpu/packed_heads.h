// Keys and values laid out as the tile kernel reads them.
#pragma once

#include "attention/cpu/reference.h"
#include "attention/cpu/tile_kernel.h"

namespace sparsereel::attention::cpu {

/// The packed keys and values of every head of a problem, in memory that the caller gives.
class PackedHeads {
 public:
  static int64_t floats(const Problem& problem, Arithmetic arithmetic);

  PackedHeads(const Problem& problem, Arithmetic arithmetic, float* memory);

  /// Packs everything; int8 arithmetic also takes the means off and rounds.
  void pack(const ParallelFor& parallel);

  /// The tile's pointers into head (b, h).
  void attach(int64_t b, int64_t h, Tile& tile) const;

 private:
  float* keys(int64_t head, int64_t block) const;
  float* values(int64_t head, int64_t block) const;
  float* side(int64_t head) const;  // int8: key_scale [key_blocks, 64], then four vectors of padded_dim
  void pack_block(int64_t head, int64_t block) const;
  void round_head(int64_t head) const;

  const Problem& problem_;
  const Arithmetic arithmetic_;
  const int64_t stride_;
  float* const memory_;
};

}  // namespace sparsereel::attention::cpu
