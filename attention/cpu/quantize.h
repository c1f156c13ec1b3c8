// Emulates the 8-bit formats of the quantized kernels. The rounding functions return the stored value.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "attention/cpu/quantize_constants.h"

namespace sparsereel::attention::cpu {

constexpr int64_t kKeyGroups = 4;  // number of int8 scales in a block of 64 keys

/// Returns the group of a key within its block. Keys of a group share an int8 scale. The groups are the keys that one
/// thread holds in a tensor-core accumulator (SageAttention2, arXiv 2411.10958, "per-thread quantization").
inline int64_t key_group(int64_t key) {
  return key % 8 / 2;
}

/// Returns the group of the means of block `block` in a record of means, which holds 64 cells. Cells of a group share
/// an int8 scale. The number of blocks of a record is a multiple of four, and GPU kernels give each thread of an
/// accumulator the cells of every fourth block.
inline int64_t mean_group(int64_t block) {
  return block % 4;
}

/// Returns log2 of the e4m3 weight of a key whose score is the largest of its row. A mean with the same score weighs
/// mean_cell times as much (see KernelParams), and that weight must also fit into e4m3.
inline double weight_offset(int64_t mean_cell) {
  return kE4m3MaxLog2 - (mean_cell > 0 ? std::log2(static_cast<double>(mean_cell)) : 0);
}

inline double int8_scale(double largest) {
  return largest / kInt8Max + kInt8MinScale;
}

/// Rounds to the nearest integer, ties to even, and clamps to +-127.
inline double round_int8(double x) {
  return std::clamp(std::nearbyint(x), -kInt8Max, kInt8Max);
}

/// Rounds values [count, channels] to int8 in place. Writes the scale of each channel to scale [channels]. If a value
/// is not finite, the channel's scale is not finite either. Every operation is rounded to fp32, so GPUs compute the
/// same bits.
inline void round_values(float* values, int64_t count, int64_t channels, float* scale) {
  for (int64_t d = 0; d < channels; ++d) {
    uint32_t most = 0;  // the bits of |v|, so that a NaN is larger than all numbers
    for (int64_t i = 0; i < count; ++i)
      most = std::max(most, std::bit_cast<uint32_t>(std::abs(values[i * channels + d])));
    const auto largest = std::bit_cast<float>(most), steps = static_cast<float>(kInt8Max);
    const float inverse = largest > kLeastInt8Value ? steps / largest : 0.0F;
    scale[d] = largest / steps;
    for (int64_t i = 0; i < count; ++i) {
      float& value = values[i * channels + d];
      value = std::nearbyint(value * inverse);
    }
  }
}

/// Returns the nearest e4m3 value (4 exponent bits, 3 mantissa bits, no infinity), ties to even, saturating.
inline double round_e4m3(double x) {
  if (!(std::abs(x) > 0)) return x;  // zero and NaN
  const int exponent = std::max(std::ilogb(x), -6);
  const double step = std::ldexp(1.0, exponent - 3);
  return std::clamp(std::nearbyint(x / step) * step, -kE4m3Max, kE4m3Max);
}

}  // namespace sparsereel::attention::cpu
