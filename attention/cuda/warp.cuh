// Reductions over the lanes of a warp.
#pragma once

namespace sparsereel::attention::cuda {

/// Returns the sum over the warp, the same in every lane.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0U, x, lanes);
  return x;
}

/// Returns the largest value over the warp, the same in every lane.
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, lanes));
  return x;
}

}  // namespace sparsereel::attention::cuda
