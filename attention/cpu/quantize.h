// 8-bit number formats of the quantised kernels, emulated: what a value becomes when it is stored.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/cpu/quantize_constants.h"

namespace sparsereel::attention::cpu {

constexpr int64_t kKeyGroups = 4;  // int8 scales in a block of 64 keys

/// Keys of a block that share an int8 scale: the keys that one thread of a tensor-core accumulator owns
/// (SageAttention2, arXiv 2411.10958, "per-thread quantisation").
inline int64_t key_group(int64_t key) {
  return key % 8 / 2;
}

/// Cells of a record of 64 that share an int8 scale when they are the means of block `block`: a record holds a whole
/// number of times four blocks, and GPU kernels give each thread of an accumulator the cells of every fourth.
inline int64_t mean_group(int64_t block) {
  return block % 4;
}

/// log2 of the weight of a row's maximum as e4m3, so that the largest one, of a mean, fits; mean_cell as in Problem.
inline double weight_offset(int64_t mean_cell) {
  return kE4m3MaxLog2 - (mean_cell > 0 ? std::log2(static_cast<double>(mean_cell)) : 0);
}

inline double int8_scale(double largest) {
  return largest / kInt8Max + kInt8MinScale;
}

/// Nearest int8 step, ties to even, clamped to +-127.
inline double round_int8(double x) {
  return std::clamp(std::nearbyint(x), -kInt8Max, kInt8Max);
}

/// Nearest e4m3 value (4 exponent bits, 3 mantissa bits, no infinity), ties to even, saturating.
inline double round_e4m3(double x) {
  if (!(std::abs(x) > 0)) return x;  // zero and NaN
  const int exponent = std::max(std::ilogb(x), -6);
  const double step = std::ldexp(1.0, exponent - 3);
  return std::clamp(std::nearbyint(x / step) * step, -kE4m3Max, kE4m3Max);
}

}  // namespace sparsereel::attention::cpu
