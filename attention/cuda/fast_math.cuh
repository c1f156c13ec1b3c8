// Approximate functions of one instruction each. They flush denormals to zero.
#pragma once

namespace sparsereel::attention::cuda {

/// Returns 2^x to about 2 ulp; 0 for -inf. exp2f would add instructions for results below the normal range.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float fast_sqrt(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Returns 1 / x to about 1 ulp.
__device__ inline float fast_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace sparsereel::attention::cuda
