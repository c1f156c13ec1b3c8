// Computes P, the weights of a block's keys, from this lane's scores of one row. P becomes the A operand of P.V.
//
// A lane holds columns 2 t and 2 t + 1 of each tile of 8 keys, for row g (half 0) and for row g + 8 (half 1). mma.cuh
// defines g and t.
#pragma once

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/mma.cuh"
#include "attention/cuda/value_records.cuh"

namespace sparsereel::attention::cuda {

// The bits of 1.5 * 2^23 as a float. If an integer of up to 22 bits is added to these bits, the result is the float 1.5
// * 2^23 + the integer. So accumulators start at kMagicBits, and one subtraction turns them into floats. The conversion
// instruction is four times slower.
constexpr int32_t kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0F;

/// Returns the integer, as a float, that was added to kMagicBits.
__device__ inline float without_magic(int32_t x) {
  return __int_as_float(x) - kMagic;
}

constexpr int kKeyTiles = kRecord / 8;
using RowTileScores = int32_t[kKeyTiles][4];  // scores with kMagicBits added, or -inf

constexpr float kMostWeightLog2 = 7.994353437F;  // log2 of 255, the largest uint8

/// Returns the largest of this lane's scores of a row.
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

/// Computes P = 255 * 2^(scale (s - top) + below), rounded to uint8. top: the largest of this lane's scores. below: the
/// distance of that score from the block's maximum in log2 units, at most 0. Both summands of the exponent are at most
/// 0, so P cannot exceed 255. Returns the sum of the rounded P.
__device__ inline float int8_weights(const RowTileScores& s, int half, float scale, float top, float below,
                                     uint32_t (&weights)[kRecord / 32][4]) {
  const float shift = below + kMostWeightLog2;
  const auto weight = [&](int n, int i) {
    const float x = fast_exp2(fmaf(__int_as_float(s[n][2 * half + i]) - top, scale, shift));
    return __float_as_uint(x + kMagic);  // the low byte is x, rounded to an integer
  };
  auto sum = static_cast<unsigned>(kMagicBits);
  // The four bytes of a word belong to positions 4 t to 4 t + 3 among 16 keys. In a V record, these positions have the
  // keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
#pragma unroll
  for (int n = 0; n < kKeyTiles; n += 2) {
    const uint32_t word = four_bytes(weight(n, 0), weight(n, 1), weight(n + 1, 0), weight(n + 1, 1));
    weights[n / 4][n / 2 % 2 * 2 + half] = word;
    sum = __dp4a(word, 0x01010101U, sum);
  }
  return without_magic(static_cast<int32_t>(sum));
}

}  // namespace sparsereel::attention::cuda
