// The precision in which a CPU computes the matrix products of attention.
#pragma once

namespace sparsereel::attention::cpu {

/// How a CPU computes.
/// exact: fp32.
/// int8: emulates SageAttention's arithmetic, which is also that of the Hopper kernel.
/// - The mean of K over the sequence is subtracted from K. The channels of Q and K are balanced (balance.h) and rounded
/// to int8 with scale = max|x| / 127 + 1e-7. Each query has a scale, and the 16 keys j of a block with equal (j % 8) /
/// 2 share a scale.
/// - P is e4m3 with the row's maximum at 448. The mean of V is subtracted from V, which becomes e4m3 with a scale per
/// channel, max|v| / 448. Outputs are divided by the sum of the rounded P.
/// - Means are taken from these rounded K and V. The means of K are rounded to int8 again: 64 cells form a record, and
/// the cells of its blocks j with equal j % 4 share a scale. The means of V are rounded to e4m3 with V's scale. The
/// row's maximum of P is then at 448 / cell, so that the weight of a mean fits.
/// int8_values: emulates the `ada` kernel. K and Q are rounded as in int8.
/// - The mean of V is subtracted from V, which becomes int8 with a scale for each channel of 64 keys, max|v| / 127. The
/// means of V are taken from these rounded values and rounded to int8 again, with a scale for each channel of 64 cells.
/// - P is uint8: 255 stands for the row's largest weight among the 64 keys. Products with V are added to the output in
/// fp32, times their scale. Outputs are divided by the sum of the rounded P.
enum class Arithmetic { exact, int8, int8_values };

}  // namespace sparsereel::attention::cpu
