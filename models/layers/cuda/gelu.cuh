// The tanh approximation of GELU, eight elements at a time.
#pragma once

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/packed.cuh"

namespace sparsereel::models::cuda {

using attention::cuda::kLaneElements;
using attention::cuda::Packed;

/// Returns gelu(x) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, written as x times a logistic function with one
/// exponential. The number of instructions limits the kernel's speed. So log2(e) is multiplied into the constants, and
/// the approximate instructions are used, which may round denormals to 0.
template <typename T>
__device__ inline Packed<T> gelu(const Packed<T>& packed) {
  float x[kLaneElements];
  attention::cuda::unpack(packed, x);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const float exponent = x[i] * fmaf(-0.1029432407F, x[i] * x[i], -2.3022081985F);
    x[i] *= attention::cuda::fast_inverse(1 + attention::cuda::fast_exp2(exponent));
  }
  return attention::cuda::pack<T>(x);
}

}  // namespace sparsereel::models::cuda
