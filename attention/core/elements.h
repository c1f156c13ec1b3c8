// Converts between 16-bit elements and fp32. A CPU computes calls with fp16 and bf16 tensors in fp32.
#pragma once

#include <bit>
#include <cstdint>

#include "attention/call.h"
#include "hilbert/half.h"

namespace sparsereel::attention {

inline float float_of_bf16(uint16_t x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
}

/// Rounds to nearest, ties to even. fp16_of_float() rounds in the same way; float_of_half() converts fp16 back to fp32.
inline uint16_t bf16_of_float(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline uint16_t fp16_of_float(float x) {
  const auto all = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(all >> 16 & 0x8000);
  const uint32_t bits = all & 0x7FFFFFFF;
  if (bits > 0x7F800000) return sign | 0x7E00;
  if (bits >= 0x477FF000) return sign | 0x7C00;  // rounds to 65536, beyond fp16's range
  if (bits < 0x38800000) {  // below 2^-14, fp16 numbers are as far apart as fp32 numbers at 0.5, so adding 0.5 rounds
    const float shifted = std::bit_cast<float>(bits) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  return static_cast<uint16_t>(sign | (bits - 0x38000000 + 0xFFF + (bits >> 13 & 1)) >> 13);
}

/// The shape [batch, tokens, heads, head_dim] of a call's tensor.
struct RowSizes {
  int64_t batch, tokens, heads, head_dim;
  int64_t count() const { return batch * tokens * heads * head_dim; }
};

/// widen() copies 16-bit rows to contiguous fp32 rows. narrow() copies contiguous fp32 rows to 16-bit rows, and rounds.
void widen(const StridedRows& from, Element element, const RowSizes& sizes, float* to,
           const cpu::ParallelFor& parallel);
void narrow(const float* from, const RowSizes& sizes, const StridedRows& to, Element element,
            const cpu::ParallelFor& parallel);

}  // namespace sparsereel::attention
