// Multi-threaded attention over the kept blocks only, in fp32 or with emulated 8-bit arithmetic.
#pragma once

#include <span>

#include "attention/cpu/arithmetic.h"
#include "attention/cpu/tile_kernel.h"

namespace sparsereel::attention::cpu {

/// Returns the floats of scratch memory that block_sparse_attention() needs for packed keys and values.
int64_t block_sparse_scratch_floats(const KernelParams& params, Arithmetic arithmetic);

/// Computes attention over the blocks of `map` (see keep_visible) by online softmax in ascending key blocks. Keys and
/// values are copied into the kernel's layout once per head (packed_heads.h); then every row of 64 queries is one piece
/// of work.
/// With params.mean_cell, each cell of that many tokens in the blocks that a row drops, below blocks_with_means(), is
/// an extra key before all others: score = scale * q . mean(K of the cell) + ln(cell), value = mean(V of the cell).
/// Means count in the running maximum (without the ln), and their P.V is never skipped.
/// pv_thresholds[h] is lambda in log2 units. A block's P.V is skipped if no row's maximum comes within lambda of its
/// running maximum or above it. The P.V of a row's last block is never skipped. Queries without a key get zeros and lse
/// -inf. `scratch` holds block_sparse_scratch_floats() floats, 64-byte aligned. `kernel` is one of tile_kernels().
Counts block_sparse_attention(const KernelParams& params, const BlockMap& map, std::span<const double> pv_thresholds,
                              Arithmetic arithmetic, const TileKernel& kernel, float* scratch,
                              const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
