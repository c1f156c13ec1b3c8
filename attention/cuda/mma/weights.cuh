// Computes P, the weights of the keys of a block, from the scores of one row in this lane. The weights become the A
// operand of P.V.
//
// A lane holds columns 2 t and 2 t + 1 of each tile of 8 keys, as rows g (half 0) and g + 8 (half 1) of the
// accumulators.
#pragma once

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/mma.cuh"
#include "attention/cuda/value_records.cuh"

namespace sparsereel::attention::cuda {

// The bits of 1.5 * 2^23 as a float. Adding an integer of up to 22 bits to them gives the float 1.5 * 2^23 plus the
// integer. So an accumulator that starts at these bits becomes a float by one subtraction; the conversion instruction
// is four times slower.
constexpr int32_t kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0F;

/// Integers that start at kMagicBits, as floats.
__device__ inline float without_magic(int32_t x) {
  return __int_as_float(x) - kMagic;
}

constexpr int kKeyTiles = kRecord / 8;
using RowTileScores = int32_t[kKeyTiles][4];  // with kMagicBits added, or -inf

constexpr float kMostWeightLog2 = 7.994353437F;  // log2 of 255, the largest uint8

/// Returns the largest score of a row.
__device__ inline float largest_score(const RowTileScores& s, int half) {
  float most = -INFINITY;
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n)
    most = fmaxf(most, fmaxf(__int_as_float(s[n][2 * half]), __int_as_float(s[n][2 * half + 1])));
  return most;
}

/// Computes P = 2^(scale s + shift) in fp16. Returns the sum of the rounded P.
__device__ inline float half_weights(const RowTileScores& s, int half, float scale, float shift,
                                     uint32_t (&weights)[kRecord / 16][4]) {
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
    const auto weight = [&](int i) { return fast_exp2(fmaf(without_magic(s[n][2 * half + i]), scale, shift)); };
    const __half2 pair = __floats2half2_rn(weight(0), weight(1));
    const float2 rounded = __half22float2(pair);
    sum += rounded.x + rounded.y;
    weights[n / 2][n % 2 * 2 + half] = reinterpret_cast<const uint32_t&>(pair);
  }
  return sum;
}

/// Computes P = 255 * 2^(scale (s - top) + below), rounded to uint8. top: the largest of s. below: at most 0. As both
/// summands of the exponent are at most 0, no rounding makes P exceed 255. Returns the sum of the rounded P.
__device__ inline float int8_weights(const RowTileScores& s, int half, float scale, float top, float below,
                                     uint32_t (&weights)[kRecord / 32][4]) {
  const float shift = below + kMostWeightLog2;
  const auto weight = [&](int n, int i) {
    const float x = fast_exp2(fmaf(__int_as_float(s[n][2 * half + i]) - top, scale, shift));
    return __float_as_uint(x + kMagic);  // the low byte is x, rounded
  };
  auto sum = static_cast<unsigned>(kMagicBits);
  // The four bytes of a word are the positions 4 t to 4 t + 3 of 16 keys. There V has the keys 2 t, 2 t + 1, 2 t + 8
  // and 2 t + 9.
#pragma unroll
  for (int n = 0; n < kKeyTiles; n += 2) {
    const uint32_t word = four_bytes(weight(n, 0), weight(n, 1), weight(n + 1, 0), weight(n + 1, 1));
    weights[n / 4][n / 2 % 2 * 2 + half] = word;
    sum = __dp4a(word, 0x01010101U, sum);
  }
  return without_magic(static_cast<int32_t>(sum));
}

}  // namespace sparsereel::attention::cuda
