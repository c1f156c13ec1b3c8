// Multi-threaded attention over the kept blocks only, in fp32 or with the 8-bit arithmetic emulated.
#pragma once

#include <span>

#include "attention/cpu/reference.h"
#include "attention/cpu/tile_kernel.h"

namespace sparsereel::attention::cpu {

/// Floats of scratch memory that block_sparse_attention() needs for the packed keys and values.
int64_t block_sparse_scratch_floats(const Problem& problem, Arithmetic arithmetic);

/// As reference_attention(), fast: keys and values are packed once a head, then every row of 64 queries is one piece of
/// work. scratch: block_sparse_scratch_floats() floats, 64-byte aligned. kernel: one of tile_kernels().
Counts block_sparse_attention(const Problem& problem, const BlockMap& map, std::span<const double> pv_thresholds,
                              Arithmetic arithmetic, const TileKernel& kernel, float* scratch,
                              const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
