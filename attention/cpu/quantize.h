// Emulates the 8-bit formats of the quantized kernels: each function returns the stored value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/cpu/quantize_constants.h"

namespace sparsereel::attention::cpu {

constexpr int64_t kKeyGroups = 4;  // int8 scales per block of 64 keys

/// Returns the group of a key within its block. Keys of a group share an int8 scale: they are the keys that one thread
/// of a tensor-core accumulator owns (SageAttention2, arXiv 2411.10958, "per-thread quantization").
inline int64_t key_group(int64_t key) {
  return key % 8 / 2;
}

/// Returns the group of the means of block `block` in a record, which holds the means of 64 cells. Cells of a group
/// share an int8 scale. A record holds a multiple of four blocks, and GPU kernels give each thread of an accumulator
/// the cells of every fourth block.
inline int64_t mean_group(int64_t block) {
  return block % 4;
}

/// Returns log2 of the e4m3 weight of a key whose score is its row's maximum. A mean with that score weighs mean_cell
/// times as much, which must fit too. For mean_cell see KernelParams.
inline double weight_offset(int64_t mean_cell) {
  return kE4m3MaxLog2 - (mean_cell > 0 ? std::log2(static_cast<double>(mean_cell)) : 0);
}

inline double int8_scale(double largest) {
  return largest / kInt8Max + kInt8MinScale;
}

/// Returns the nearest int8 step, ties to even, clamped to +-127.
inline double round_int8(double x) {
  return std::clamp(std::nearbyint(x), -kInt8Max, kInt8Max);
}

/// Returns the nearest e4m3 value (4 exponent bits, 3 mantissa bits, no infinity), ties to even, saturating.
inline double round_e4m3(double x) {
  if (!(std::abs(x) > 0)) return x;  // zero and NaN
  const int exponent = std::max(std::ilogb(x), -6);
  const double step = std::ldexp(1.0, exponent - 3);
  return std::clamp(std::nearbyint(x / step) * step, -kE4m3Max, kE4m3Max);
}

}  // namespace sparsereel::attention::cpu
