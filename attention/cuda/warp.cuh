// What the lanes of a warp, or some warps of a CTA, do together.
#pragma once

namespace sparsereel::attention::cuda {

/// Sum over the warp, the same in every lane.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0U, x, lanes);
  return x;
}

/// A barrier among `threads` threads of a CTA, by number; 0 is __syncthreads().
__device__ inline void named_wait(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace sparsereel::attention::cuda
