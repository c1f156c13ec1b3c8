// The precision in which a CPU computes the products of attention.
#pragma once

namespace sparsereel::attention::cpu {

/// exact: fp32.
/// int8: emulates SageAttention's arithmetic.
/// - K is reduced by its mean over the sequence. The channels of Q and K are balanced (balance.h) and rounded to int8
///   with scale = max|x| / 127 + 1e-7. Each query has a scale, and the 16 keys j of a block with equal (j % 8) / 2
///   share one.
/// - P is e4m3 with the row's maximum at 448. V is reduced by its mean and is e4m3 with a scale per channel, max|v| /
///   448. Sums are normalized by the rounded P.
/// - Means are taken from these rounded K and V. Their K is rounded to int8 again. A record has 64 cells, and the cells
///   of its blocks j with equal j % 4 share a scale. Their V is rounded to e4m3 with V's scale. The row's maximum of P
///   is then at 448 / cell, so that the weight of a mean fits.
enum class Arithmetic { exact, int8 };

}  // namespace sparsereel::attention::cpu
