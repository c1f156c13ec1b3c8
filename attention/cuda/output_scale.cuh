// Outputs in e4m3. A batch entry has one scale, which comes from its largest |v|: no output can be larger, because it
// is a weighted mean of values. e4m3 is a floating-point format, so outputs down to 1/28672 of the largest |v| lose no
// precision (attention/docs/kernels.md).
#pragma once

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/value_records.cuh"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {

/// Raises the scale to fit `most`, the largest |v| that this lane has seen. All lanes of the warp call this together.
/// Non-negative floats have the same order as their bits, for which there is an atomic maximum.
__device__ inline void raise_out_scale(float most, float* scale) {
  most = warp_max(most) * (1 / kE4m3Max);
  if (threadIdx.x % 32 == 0 && most > __ldcg(scale)) atomicMax(reinterpret_cast<int*>(scale), __float_as_int(most));
}

/// Returns the factor by which outputs of a batch entry are multiplied before they are rounded: 1 unless they become
/// e4m3.
__device__ inline float inverse_out_scale(const KernelParams& p, int b) {
  constexpr float kLeast = 0x1p-100F;  // avoids a division by 0 if all of V is 0
  return p.out_scale == nullptr ? 1.0F : fast_inverse(fmaxf(p.out_scale[b], kLeast));
}

/// Stores eight values as e4m3. `to` is aligned to 8 bytes.
__device__ inline void store_e4m3(uint8_t* to, const float (&x)[kLaneElements]) {
  *reinterpret_cast<uint2*>(to) = make_uint2(e4m3x4(x[0], x[1], x[2], x[3]), e4m3x4(x[4], x[5], x[6], x[7]));
}

}  // namespace sparsereel::attention::cuda
