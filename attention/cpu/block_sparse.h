// Multi-threaded attention over the kept blocks only, in fp32 or with the 8-bit arithmetic emulated.
#pragma once

#include <span>

#include "attention/cpu/arithmetic.h"
#include "attention/cpu/tile_kernel.h"

namespace sparsereel::attention::cpu {

/// Floats of scratch memory that block_sparse_attention() needs for the packed keys and values.
int64_t block_sparse_scratch_floats(const Problem& problem, Arithmetic arithmetic);

/// Attention over the blocks of `map` (see keep_visible) by online softmax in ascending key blocks. With
/// problem.mean_cell, each cell of so many tokens in the blocks that a row drops, of those below blocks_with_means(),
/// is one more key in front of them: score = scale * q . mean(K of the cell) + ln(cell), value = mean(V of the cell).
/// They count in the running maximum (without the ln), and their P.V is never skipped. pv_thresholds[h]: lambda in log2
/// units; a block's P.V is skipped where no row's maximum comes within lambda of (or above) its running maximum; the
/// last block of a row of blocks never is. Rows without a key give zeros and lse -inf. Keys and values are packed once
/// a head, then every row of 64 queries is one piece of work. scratch: block_sparse_scratch_floats() floats, 64-byte
/// aligned. kernel: one of tile_kernels().
Counts block_sparse_attention(const Problem& problem, const BlockMap& map, std::span<const double> pv_thresholds,
                              Arithmetic arithmetic, const TileKernel& kernel, float* scratch,
                              const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
