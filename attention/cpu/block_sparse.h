// Multi-threaded attention over the blocks of a map, in fp32 or with emulated 8-bit arithmetic.
#pragma once

#include <span>

#include "attention/cpu/arithmetic.h"
#include "attention/cpu/tile_kernel.h"

namespace sparsereel::attention::cpu {

/// Returns the floats of scratch memory that block_sparse_attention() needs for packed keys and values.
int64_t block_sparse_scratch_floats(const KernelParams& params, Arithmetic arithmetic);

/// Computes attention over the blocks of `map` (see keep_visible) by online softmax, in ascending order of key blocks.
/// Keys and values are copied into the kernel's layout once per head (packed_heads.h). Then each tile of 64 queries is
/// one piece of work for a thread.
/// If params.mean_cell is set, means replace each key block that a tile drops, if it is one of the tile's first
/// blocks_with_means() blocks. Each cell of mean_cell tokens becomes an extra key before all others: its score is scale
/// q . mean(K of the cell) + ln(cell), and its value is mean(V of the cell). The running maximum uses the score without
/// ln(cell). The P.V of means is never skipped.
/// pv_thresholds[h] is the threshold of head h in log2 units. The P.V of a block is skipped if, for each query of the
/// tile, the largest score of the block is at least the threshold below the running maximum. The P.V of a tile's last
/// block is never skipped.
/// Queries that see no key get zeros and lse -inf. `scratch` holds block_sparse_scratch_floats() floats, aligned to 64
/// bytes. `kernel` is one of tile_kernels().
Counts block_sparse_attention(const KernelParams& params, const BlockMap& map, std::span<const double> pv_thresholds,
                              Arithmetic arithmetic, const TileKernel& kernel, float* scratch,
                              const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
