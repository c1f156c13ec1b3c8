// The precision in which a CPU computes the matrix products of attention.
#pragma once

namespace sparsereel::attention::cpu {

/// How a CPU computes.
/// exact: fp32.
/// int8: emulates SageAttention's arithmetic, which the Hopper kernel also uses:
/// - The mean of K over the sequence is subtracted from K. The channels of Q and K are balanced (balance.h). Then Q and
///   K are rounded to int8 with scale = max|x| / 127 + 1e-7. Each query has its own scale. A block of 64 keys has four
///   scales: keys with equal (j % 8) / 2, rounded down, share one, where j is the key's index in the block.
/// - The mean of V over the sequence is subtracted from V, which is rounded to e4m3 with scale = max|v| / 448 for each
///   channel.
/// - P, the weights of softmax before the division by their sum, is rounded to e4m3; the weight of the row's largest
///   score is 448. Outputs are divided by the sum of the rounded P.
/// - A cell is a run of `cell` tokens of a block; its mean stands for them if the block is dropped. Means are averages
///   of the rounded K and V. The means of K are rounded to int8 again, in records of 64 means. In a record, the means
///   of all blocks with equal block index % 4 share a scale. The means of V are rounded to e4m3 with V's scale. In
///   calls with means, the weight of the row's largest score is 448 / cell, so that the weight of a mean, which counts
///   `cell` times, fits into e4m3.
/// int8_values: emulates the `ada` kernel:
/// - K, Q and the means of K are rounded as in int8.
/// - The mean of V over the sequence is subtracted from V, which is rounded to int8. Each channel of each block of 64
///   keys has its own scale = max|v| / 127. The means of V's cells are averages of these rounded values, and are
///   rounded to int8 again; each channel of each record of 64 means has its own scale.
/// - P is rounded to uint8; 255 stands for the row's largest weight among the 64 keys. The product of P and V of 64
///   keys is multiplied by their scales and added to the output in fp32. Outputs are divided by the sum of the rounded
///   P.
enum class Arithmetic { exact, int8, int8_values };

}  // namespace sparsereel::attention::cpu
