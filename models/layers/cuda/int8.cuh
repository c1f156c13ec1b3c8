// Converts a thread's numbers of a row to int8, eight at a time.
#pragma once

#include <cfloat>
#include <cstdint>

#include "models/layers/cuda/int8.h"
#include "models/layers/cuda/rotation.cuh"

namespace sparsereel::models::cuda {

/// Returns the largest magnitude; infinity if a number is NaN or infinite.
__device__ inline float largest_of(const float (&x)[kLaneElements]) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) most = fmaxf(most, fabsf(x[i]) <= FLT_MAX ? fabsf(x[i]) : INFINITY);
  return most;
}

/// Rounds x / scale to integers from -128 to 127, ties to even, and packs them. `inverse` is about 1 / scale. One step
/// of Newton's method makes the quotient as exact as a division (Markstein, "Computation of elementary functions on the
/// IBM RISC System/6000 processor", 1990).
__device__ inline uint32_t pack_int8(const float* x, float scale, float inverse) {
  int integer[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float quotient = __fmul_rn(x[i], inverse);
    integer[i] = __float2int_rn(__fmaf_rn(__fmaf_rn(-quotient, scale, x[i]), inverse, quotient));
  }
  uint32_t high, all;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(integer[3]), "r"(integer[2]));
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(integer[1]), "r"(integer[0]), "r"(high));
  return all;
}

/// Stores this thread's numbers of a row, with the same bits as quantize_int8() on a CPU. x[i] starts at channel
/// column(i); numbers from `channels` on are zero. `largest` is largest_of() over the whole row. The thread with
/// channel 0 writes the row's scale.
template <int kPacks, typename Column>
__device__ inline void store_int8_row(const float (&x)[kPacks][kLaneElements], float largest, int channels,
                                      const Column& column, uint8_t* to, float* to_scale) {
  const bool finite = largest <= FLT_MAX;
  const float scale = finite ? fmaxf(__fdiv_rn(largest, kInt8Most), kLeastInt8Scale) : NAN, inverse = __frcp_rn(scale);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (column(i) >= channels) continue;
    *reinterpret_cast<uint2*>(to + column(i)) =
        finite ? make_uint2(pack_int8(x[i], scale, inverse), pack_int8(x[i] + 4, scale, inverse)) : make_uint2(0, 0);
  }
  if (column(0) == 0) *to_scale = scale;
}

}  // namespace sparsereel::models::cuda
