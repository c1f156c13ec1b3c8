// Scalar attention in double precision: the definition that the fast kernels are tested against.
#pragma once

#include <span>

#include "attention/cpu/problem.h"

namespace sparsereel::attention::cpu {

/// exact: as written. int8: SageAttention's arithmetic emulated: K less its mean over the sequence, Q and K rounded to
/// int8 (a scale a query, a scale for the 16 keys j of a block with equal (j % 8) / 2, scale = max|x| / 127 + 1e-7), P
/// as e4m3 with the row's maximum at 448, V less its mean as e4m3 with a scale a channel (max|v| / 448), sums
/// normalised by the rounded P.
enum class Arithmetic { exact, int8 };

/// Attention over the blocks of `map` (see keep_visible) by online softmax in ascending key blocks. pv_thresholds[h]:
/// lambda in log2 units; a block's P.V is skipped where no row's maximum comes within lambda of (or above) its running
/// maximum; the last block of a row of blocks never is. Rows without a key give zeros and lse -inf.
Counts reference_attention(const Problem& problem, const BlockMap& map, std::span<const double> pv_thresholds,
                           Arithmetic arithmetic, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
