// Writes output rows from mma accumulators, with any stride, 16 bytes at a time if the rows are aligned.
#pragma once

#include "attention/cuda/kernels.h"
#include "attention/cuda/rows.cuh"

namespace sparsereel::attention::cuda {

/// Transposes over the four lanes of a quad: x[i] of lane t becomes x[t] of lane i.
__device__ inline void transpose_quad(float (&x)[4]) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = (threadIdx.x & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const float given = upper ? x[i] : x[i | bit];
      const float got = __shfl_xor_sync(~0U, given, bit);
      x[i] = upper ? got : x[i];
      x[i | bit] = upper ? x[i | bit] : got;
    }
  }
}

/// The output of one (batch, head).
class OutputRows {
 public:
  /// scales_values: true if the accumulators must be multiplied by V's scale.
  __device__ OutputRows(const KernelParams& p, const Sizes& sizes, const Buffers& buffers, int bh, bool scales_values)
      : p_(p),
        bh_(bh),
        scale_(scales_values ? buffers.v_scale + static_cast<int64_t>(sizes.group.of(bh)) * sizes.D : nullptr),
        center_(buffers.v_center + static_cast<int64_t>(sizes.group.of(bh)) * sizes.D),
        q_dot_mean_(buffers.q_dot_mean + static_cast<int64_t>(bh) * p.queries) {}

  /// Writes out[query] = accumulators / sum * V's scale + V's center; zeros for a query that sees no key. half: 0 for
  /// the accumulators' row g, 1 for row g + 8 (mma.cuh). All lanes of the warp call it together; the lanes of a quad
  /// hold one row.
  template <int kChannelTiles>
  __device__ void store(int query, int half, const float (&accumulators)[kChannelTiles][4], float sum) const {
    switch (p_.element) {
      case Element::fp16:
        return store_as<__half>(query, half, accumulators, sum);
      case Element::bf16:
        return store_as<__nv_bfloat16>(query, half, accumulators, sum);
      case Element::fp32:
        return;
    }
  }

  /// Writes the log-sum-exp. sum: the row's sum of 2^(score - max), with scores and `max` in log2 units.
  __device__ void store_lse(int query, float max, float sum) const {
    if (p_.lse == nullptr || query >= p_.queries) return;
    p_.lse[static_cast<int64_t>(bh_) * p_.queries + query] =
        sum == 0 ? -INFINITY : 0.693147181F * (max + log2f(sum)) + q_dot_mean_[query];
  }

 private:
  template <typename T, int kChannelTiles>
  __device__ void store_as(int query, int half, const float (&accumulators)[kChannelTiles][4], float sum) const {
    const int b = bh_ / p_.heads, h = bh_ % p_.heads;
    T* row =
        static_cast<T*>(p_.out.data) + b * p_.out.batch_stride + h * p_.out.head_stride + query * p_.out.token_stride;
    const bool vectors = (reinterpret_cast<uintptr_t>(row) & 15) == 0;
    const float inverse = sum == 0 ? 0.0F : 1.0F / sum;
#pragma unroll
    for (int first = 0; first < kChannelTiles; first += 4) {
      float even[4], odd[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        even[i] = accumulators[first + i][2 * half];
        odd[i] = accumulators[first + i][2 * half + 1];
      }
      transpose_quad(even);
      transpose_quad(odd);
      const int column = (first + static_cast<int>(threadIdx.x) % 4) * 8;
      Packed<T> x;
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) {
        const float scale = scale_ == nullptr ? 1.0F : scale_[column + i];
        const float value = (i % 2 == 0 ? even[i / 2] : odd[i / 2]) * inverse * scale;
        from_float(sum == 0 ? 0.0F : value + center_[column + i], x.element[i]);
      }
      if (query < p_.queries && column < p_.head_dim) write(row + column, vectors, x);
    }
  }

  template <typename T>
  __device__ static void write(T* to, bool vector, const Packed<T>& x) {
    if (vector) {
      *reinterpret_cast<Packed<T>*>(to) = x;
    } else {
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) to[i] = x.element[i];
    }
  }

  const KernelParams& p_;
  const int bh_;
  const float* const scale_;       // scale of V, [D]; null if the outputs must not be multiplied by it
  const float* const center_;      // center of V, [D]
  const float* const q_dot_mean_;  // [queries], only with lse
};

}  // namespace sparsereel::attention::cuda
