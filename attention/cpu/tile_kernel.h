// The inner kernel of CPU attention: 64 queries of one head against the kept key blocks. It is compiled once per
// instruction set.
#pragma once

#include <span>

#include "attention/cpu/kernel_params.h"

namespace sparsereel::attention::cpu {

/// Number of queries that are computed together in registers. A tile's rows are padded to a multiple of it.
constexpr int64_t kRowGroup = 6;
constexpr int64_t kPaddedRows = (kBlock + kRowGroup - 1) / kRowGroup * kRowGroup;

/// Returns the number of floats in a row of stored values: head_dim, rounded up to whole vectors of every instruction
/// set.
inline int64_t padded_dim(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

/// Data of one head for the int8 emulation; its pointers are null for exact arithmetic.
struct Int8Head {
  const float* key_scale = nullptr;    // [key_blocks, 64], scales of the keys, which are stored as whole numbers
  const float* key_mean = nullptr;     // [head_dim], subtracted from the keys
  const float* value_scale = nullptr;  // [padded_dim], scales of the values, which are stored as e4m3 numbers
  const float* block_scale = nullptr;  // [key_blocks, padded_dim], only for Arithmetic::int8_values: scales of the
                                       // values, which are stored as whole numbers; value_scale is then 1
  const float* value_mean = nullptr;   // [head_dim], subtracted from the values
  const float* balance = nullptr;      // [head_dim], factor that divided the keys and multiplies the queries
};

/// The means of the blocks that a tile drops, next to each other in memory. Every query of the tile attends to all
/// these means, before any key.
struct MeanCells {
  const float* keys = nullptr;       // panels of 64 cells, [head_dim, 64] each; entries past the last cell are not used
  const float* values = nullptr;     // [cells, padded_dim]
  const float* key_scale = nullptr;  // for int8 only: [panels, 64]
  int64_t count = 0;                 // number of cells
  float log2_weight = 0;             // log2 of the number of tokens in a cell; 0 if nothing replaces dropped blocks
};

/// 64 queries of one head and the keys that they attend to.
struct Tile {
  int64_t rows = 0;  // number of queries, 1 to 64
  int64_t head_dim = 0;
  const float* q = nullptr;  // [rows, head_dim], rows q_stride apart
  int64_t q_stride = 0;
  const float* keys = nullptr;    // [key_blocks, head_dim, 64]: transposed panels, zeros past key_length
  const float* values = nullptr;  // [key_blocks, 64, padded_dim], zeros past key_length
  const uint8_t* kept = nullptr;  // [key_blocks]; 0 for dropped blocks
  int64_t key_blocks = 0;
  int64_t key_length = 0;      // number of keys before the padding
  bool causal = false;         // row r sees the keys below first_row_sees + r
  int64_t first_row_sees = 0;  // may be negative
  float scale = 1;             // multiplies q.k, so that exp(score) is a weight
  float pv_threshold = 0;      // in log2 units; with kNeverSkip or more, P.V is never skipped
  float* out = nullptr;        // [rows, head_dim], rows out_stride apart
  int64_t out_stride = 0;
  float* lse = nullptr;      // [rows]; null if not wanted
  float* scratch = nullptr;  // tile_scratch_floats(head_dim) floats, 64-byte aligned
  Int8Head int8{};
  MeanCells means{};
};

inline int64_t tile_scratch_floats(int64_t head_dim) {
  return kPaddedRows * (padded_dim(head_dim) * 2 + kBlock + 16);  // queries, outputs, scores, row sums
}

/// A tile kernel computes online softmax over the means and then over the kept blocks in ascending order, as
/// block_sparse_attention() describes. It returns the counts of blocks; mean_blocks stays 0.
struct TileKernel {
  const char* name;  // "avx512", "avx2" or "portable"
  Counts (*run)(const Tile& tile);
};

/// Returns the kernels that this machine can run, fastest first; never empty.
std::span<const TileKernel> tile_kernels();

/// Returns the fastest kernel, or forced_kernel() if this machine can run that.
const TileKernel& chosen_tile_kernel();

}  // namespace sparsereel::attention::cpu
