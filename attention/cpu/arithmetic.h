// The precision in which a CPU computes the matrix products of attention.
#pragma once

namespace sparsereel::attention::cpu {

/// How a CPU computes.
/// exact: fp32.
/// int8: emulates SageAttention's arithmetic, which the Hopper kernel also uses.
/// - The mean of K over the sequence is subtracted from K. The channels of Q and K are balanced (balance.h). Then Q and
/// K are rounded to int8 with scale = max|x| / 127 + 1e-7. Each query has its own scale. A block has 64
/// keys and four scales: the 16 keys whose number j in the block has the same (j % 8) / 2, rounded down, share one.
/// - P is rounded to e4m3; the weight of the row's largest score is 448. The mean of V over the sequence is subtracted
/// from V, which is rounded to e4m3 with scale = max|v| / 448 for each channel. Outputs are divided by the sum of the
/// rounded P.
/// - A cell is a run of `cell` tokens of a block; its mean stands for them if the block is dropped. Means are averages
/// of the rounded K and V. The means of K are rounded to int8 again, 64 at a time. The blocks of these 64 cells are
/// numbered, and the cells of all blocks with the same number % 4 share a scale. The means of V are rounded to e4m3
/// with V's scale. In calls with means, the weight of the row's largest score is 448 / cell, so that the weight of a
/// mean, which counts `cell` times, fits into e4m3. int8_values: emulates the `ada` kernel. K and Q are rounded as in
/// int8.
/// - The mean of V over the sequence is subtracted from V, which is rounded to int8 with scale = max|v| / 127 for each
/// channel of 64 keys. The means of cells are averages of these rounded values, and are rounded to int8 again with a
/// scale for each channel of 64 cells.
/// - P is rounded to uint8; 255 stands for the row's largest weight among the 64 keys. The product of P and V of 64
/// keys is multiplied by their scales and added to the output in fp32. Outputs are divided by the sum of the rounded P.
enum class Arithmetic { exact, int8, int8_values };

}  // namespace sparsereel::attention::cpu
