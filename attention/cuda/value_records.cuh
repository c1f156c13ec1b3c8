// Functions that make parts of V records: words of four e4m3 or int8 values, the sums of such values, and the rows of
// ones.
#pragma once

#include <cuda_fp8.h>

#include "attention/cuda/mma.cuh"
#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

__device__ inline uint32_t e4m3x4(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  return pack_e4m3(a, b, c, d);
#else
  return 0;  // no kernel for this target reads e4m3
#endif
}

/// Returns the entries of 16 keys, those of chunk `chunk`, in row `row` of the rows of ones (records.h): 1 in e4m3 for
/// real keys, 0 for padding. left: number of real keys from the record's start on. If there are two sets, only half of
/// the rows of each set are ones, and the other half are zeros: the sums of P of the two records then appear in
/// different columns.
template <int D>
__device__ inline uint4 ones(int row, int chunk, int left) {
  constexpr uint32_t kOne = 0x38;
  const bool in_set = ones_sets(D) == 1 || row / 4 % 2 == row / kOnesRows;
  if (left >= kRecord) {
    const uint32_t four = in_set ? kOne * 0x01010101U : 0;
    return make_uint4(four, four, four, four);
  }
  uint32_t word[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int key = chunk * 16 + i, position = value_position(i);
    if (key < left && in_set) word[position / 4] |= kOne << 8 * (position % 4);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/// If the largest of the values that share a scale is not above this, int8 stores zeros, because the inverse of the
/// scale might not be finite.
constexpr float kLeastInt8 = 1e-30F;

/// Returns the scale for int8 values with this largest magnitude; not finite if `largest` is not.
__device__ inline float int8_scale(float largest) {
  return __fdiv_rn(largest, kInt8Max);
}
__device__ inline float int8_inverse_scale(float largest) {
  return largest > kLeastInt8 ? __fdiv_rn(kInt8Max, largest) : 0.0F;
}

/// Returns x / scale rounded to int8, in the low byte of the result. Adding 1.5 * 2^23 leaves the integer in the low
/// bits.
__device__ inline uint32_t int8_byte(float x, float inverse_scale) {
  return __float_as_uint(__fadd_rn(__fmul_rn(x, inverse_scale), 12582912.0F));
}

/// Packs the low bytes of four words into one word.
__device__ inline uint32_t four_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

constexpr float kHalfMax = 65504;

__device__ inline __half2 halves_of(uint32_t two_e4m3) {
  return __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two_e4m3), __NV_E4M3));
}

/// Returns the sums of a word's e4m3 values in pairs: the first plus the third, and the second plus the fourth.
__device__ inline __half2 halves_added(uint32_t e4m3) {
  return __hadd2(halves_of(e4m3 & 0xFFFFU), halves_of(e4m3 >> 16));
}

/// Returns the key whose value is at position i (0..3) of word `word` (0..15) in a row of a V record: 0 1 8 9, 2 3 10
/// 11, ... (see value_position()).
__device__ inline int key_of(int word, int i) {
  return word / 4 * 16 + word % 4 * 2 + i / 2 * 8 + i % 2;
}

/// Returns the sum of a row of 64 e4m3 values, of which each of four neighboring lanes holds 16. `lanes` is the mask of
/// all calling lanes.
__device__ inline float sum_of_row(const uint4& e4m3, unsigned lanes = ~0U) {
  const __half2 pair =
      __hadd2(__hadd2(halves_added(e4m3.x), halves_added(e4m3.y)), __hadd2(halves_added(e4m3.z), halves_added(e4m3.w)));
  float sum = __low2float(pair) + __high2float(pair);
  sum += __shfl_xor_sync(lanes, sum, 1);
  return sum + __shfl_xor_sync(lanes, sum, 2);
}

__device__ inline float fp16_range(float x) {
  return fminf(fmaxf(x, -kHalfMax), kHalfMax);
}

}  // namespace sparsereel::attention::cuda
