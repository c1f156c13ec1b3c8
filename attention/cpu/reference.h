// Scalar attention in double precision: the definition that the fast kernels are tested against.
#pragma once

#include <span>

#include "attention/cpu/problem.h"

namespace sparsereel::attention::cpu {

/// exact: as written. int8: SageAttention's arithmetic emulated: K less its mean over the sequence, Q and K with
/// their channels balanced (balance.h) and rounded to int8 (a scale a query, a scale for the 16 keys j of a block with
/// equal (j % 8) / 2, scale = max|x| / 127 + 1e-7), P as e4m3 with the row's maximum at 448, V less its mean as e4m3
/// with a scale a channel (max|v| / 448), sums normalised by the rounded P. With means, which are taken of these
/// rounded K and V: their K rounded to int8 again (64 cells a record, the cells of the blocks j of a record with equal
/// j % 4 share a scale), their V to e4m3 with V's scale, and the row's maximum of P at 448 / cell, so that the weight
/// of a mean fits.
enum class Arithmetic { exact, int8 };

/// Attention over the blocks of `map` (see keep_visible) by online softmax in ascending key blocks. With
/// problem.mean_cell, each cell of so many tokens in the blocks that a row drops, of those below blocks_with_means(),
/// is one more key in front of them: score = scale * q . mean(K of the cell) + ln(cell), value = mean(V of the cell).
/// They count in the running maximum (without the ln), and their P.V is never skipped. pv_thresholds[h]: lambda in log2
/// units; a block's P.V is skipped where no row's maximum comes within lambda of (or above) its running maximum; the
/// last block of a row of blocks never is. Rows without a key give zeros and lse -inf.
Counts reference_attention(const Problem& problem, const BlockMap& map, std::span<const double> pv_thresholds,
                           Arithmetic arithmetic, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
