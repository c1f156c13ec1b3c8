// Keys and values copied into the layout that the tile kernel reads ("packed").
#pragma once

#include "attention/cpu/arithmetic.h"
#include "attention/cpu/tile_kernel.h"

namespace sparsereel::attention::cpu {

/// The means of one head's key blocks of video. A cell is a group of consecutive tokens with one mean; the cells of a
/// block are next to each other.
struct PackedMeans {
  int64_t cells = 0;                 // cells per block
  const float* keys = nullptr;       // [blocks, head_dim, cells]
  const float* values = nullptr;     // [blocks, cells, padded_dim]
  const float* key_scale = nullptr;  // [blocks, cells]; null in exact arithmetic
};

/// The keys and values of every head in the tile kernel's layout, and their means if the call uses means. The caller
/// owns the memory.
class PackedHeads {
 public:
  /// Returns how many floats `memory` must hold.
  static int64_t floats(const KernelParams& params, Arithmetic arithmetic);

  PackedHeads(const KernelParams& params, Arithmetic arithmetic, float* memory);

  /// Copies keys and values into the layout. In 8-bit arithmetic, also subtracts their means, balances the channels and
  /// rounds.
  void pack(const ParallelFor& parallel);

  /// Sets the tile's pointers to the keys and values of the query head (b, h).
  void attach(int64_t b, int64_t h, Tile& tile) const;

  /// Returns the means for the query head (b, h). Only blocks of 64 video keys have means.
  PackedMeans means(int64_t b, int64_t h) const;

 private:
  // Below, `head` is an index among the heads of k and v of all batch entries: b * (heads of k and v) + head of k and
  // v.
  int64_t heads() const { return params_.batch * params_.heads_of_keys(); }
  int64_t head_of(int64_t b, int64_t h) const { return b * params_.heads_of_keys() + h / params_.group(); }
  float* keys(int64_t head, int64_t block) const;
  float* values(int64_t head, int64_t block) const;
  /// Returns the scales and means of a head: key_scale [key_blocks, 64]; then the mean of K, the scale and the mean of
  /// V, and the balance, each [padded_dim]; then, for int8_values, block_scale [key_blocks, padded_dim]. Exact
  /// arithmetic has none of these.
  float* side(int64_t head) const;
  static int64_t side_floats(const KernelParams& params, Arithmetic arithmetic);
  float* block_scale(int64_t head, int64_t block) const;
  void pack_block(int64_t head, int64_t block) const;
  void balance_keys(int64_t head, float* balance) const;
  void round_head(int64_t head) const;
  void round_channel(int64_t head, int64_t channel, float& scale) const;
  void average_block(int64_t head, int64_t block) const;
  void round_means(int64_t head) const;
  void round_mean_values(int64_t head) const;
  float* mean_keys(int64_t head) const;
  float* mean_values(int64_t head) const;
  float* mean_scale(int64_t head) const;
  int64_t cells_of_block() const { return params_.mean_cell > 0 ? kBlock / params_.mean_cell : 0; }
  int64_t whole_blocks(int64_t head) const { return params_.video_keys(head / params_.heads_of_keys()) / kBlock; }

  const KernelParams& params_;
  const Arithmetic arithmetic_;
  const int64_t stride_;
  float* const memory_;
};

}  // namespace sparsereel::attention::cpu
