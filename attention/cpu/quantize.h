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
