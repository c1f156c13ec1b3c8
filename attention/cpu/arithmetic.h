// In which numbers the products of attention on a CPU are computed.
#pragma once

namespace sparsereel::attention::cpu {

/// exact: as written. int8: SageAttention's arithmetic emulated: K less its mean over the sequence, Q and K with
/// their channels balanced (balance.h) and rounded to int8 (a scale a query, a scale for the 16 keys j of a block with
/// equal (j % 8) / 2, scale = max|x| / 127 + 1e-7), P as e4m3 with the row's maximum at 448, V less its mean as e4m3
/// with a scale a channel (max|v| / 448), sums normalised by the rounded P. With means, which are taken of these
/// rounded K and V: their K rounded to int8 again (64 cells a record, the cells of the blocks j of a record with equal
/// j % 4 share a scale), their V to e4m3 with V's scale, and the row's maximum of P at 448 / cell, so that the weight
/// of a mean fits.
enum class Arithmetic { exact, int8 };

}  // namespace sparsereel::attention::cpu
