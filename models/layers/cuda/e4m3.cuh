// Converts a thread's elements of a row to e4m3, eight at a time.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "attention/cuda/packed.cuh"
#include "models/layers/cuda/e4m3.h"

namespace sparsereel::models::cuda {

using attention::cuda::kLaneElements;
using attention::cuda::Packed;

/// Returns the scale of a row from its largest absolute value, with the same bits as quantize_rows() in layers/fp8.cpp.
__device__ inline float e4m3_scale(float largest) {
  return __fmul_rn(fmaxf(largest, kLeastE4m3Row), 1 / kE4m3Most);
}

template <typename T>
__device__ inline float largest_of(const Packed<T>& x) {
  float values[kLaneElements], most = 0;
  attention::cuda::unpack(x, values);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) most = fmaxf(most, fabsf(values[i]));
  return most;
}

/// Stores x * inverse_scale as eight e4m3 numbers. `to` must be aligned to 8 bytes. NaN stays NaN.
template <typename T>
__device__ inline void store_e4m3(uint8_t* to, const Packed<T>& x, float inverse_scale) {
  float values[kLaneElements];
  attention::cuda::unpack(x, values);
  __nv_fp8x2_storage_t pair[kLaneElements / 2];
#pragma unroll
  for (int i = 0; i < kLaneElements; i += 2) {
    pair[i / 2] = __nv_cvt_float2_to_fp8x2(
        make_float2(__fmul_rn(values[i], inverse_scale), __fmul_rn(values[i + 1], inverse_scale)), __NV_SATFINITE,
        __NV_E4M3);
  }
  *reinterpret_cast<uint2*>(to) =
      make_uint2(pair[0] | static_cast<uint32_t>(pair[1]) << 16, pair[2] | static_cast<uint32_t>(pair[3]) << 16);
}

/// Stores this thread's packs (eight elements each) of a row. Pack i starts at channel column(i); elements from
/// `channels` on are zero. `largest` is the largest absolute value of the whole row. The thread with channel 0 writes
/// the row's scale.
template <typename T, int kPacks, typename Column>
__device__ inline void store_e4m3_row(const Packed<T> (&x)[kPacks], float largest, int channels, const Column& column,
                                      uint8_t* to, float* to_scale) {
  const float scale = e4m3_scale(largest), inverse = __frcp_rn(scale);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (column(i) < channels) store_e4m3(to + column(i), x[i], inverse);
  }
  if (column(0) == 0) *to_scale = scale;
}

}  // namespace sparsereel::models::cuda
