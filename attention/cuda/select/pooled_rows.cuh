// Multiplies mean queries with mean keys on tensor cores.
#pragma once

#include <cuda_bf16.h>

#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

constexpr int kPooledRows = 16;  // rows of the tensor core's m16n8k16

/// 16 rows of mean queries in bf16, held by a warp. A lane holds parts of the rows lane / 4 and lane / 4 + 8. The
/// elements of a row may be summed in any order if both operands use the same order. So a lane takes 8 consecutive
/// elements of every 32 and uses them for two multiplications.
template <int D>
class PooledRows {
 public:
  /// Loads the rows, which are `stride` elements apart. Rows from `real` on are not read but taken as zeros.
  __device__ PooledRows(const __nv_bfloat16* rows, int stride, int real) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4;
    const __nv_bfloat16* from = rows + row * stride + lane % 4 * 8;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      low_[k] = row < real ? *reinterpret_cast<const uint4*>(from + k * 32) : uint4{};
      high_[k] = row + 8 < real ? *reinterpret_cast<const uint4*>(from + 8 * stride + k * 32) : uint4{};
    }
  }

  /// Computes N products. c[n] is the product of the rows with the mean keys of 8 consecutive blocks of a head; the
  /// first of them is block min(first + 8 n, last). Keys are laid out by pooled_offset(). c[n][i] belongs to row
  /// lane / 4 + i / 2 * 8 and to key lane % 4 * 2 + i % 2 of the 8.
  template <int N>
  __device__ void multiply(const uint16_t* keys, int first, int last, float (&c)[N][4]) const {
    const uint16_t* from[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      from[n] = keys + static_cast<int64_t>(min(first + n * kPooledKeys, last)) * D + threadIdx.x % 32 * 8;
      c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
    }
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      uint4 part[N];
#pragma unroll
      for (int n = 0; n < N; ++n) part[n] = __ldg(reinterpret_cast<const uint4*>(from[n] + k * 256));
#pragma unroll
      for (int n = 0; n < N; ++n) step(c[n], low_[k].x, high_[k].x, low_[k].y, high_[k].y, part[n].x, part[n].y);
#pragma unroll
      for (int n = 0; n < N; ++n) step(c[n], low_[k].z, high_[k].z, low_[k].w, high_[k].w, part[n].z, part[n].w);
    }
  }
  __device__ void multiply(const uint16_t* keys, int first, float (&c)[4]) const {
    float one[1][4];
    multiply(keys, first, first, one);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] = one[0][i];
  }

 private:
  __device__ static void step(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                              uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }

  uint4 low_[D / 32], high_[D / 32];
};

}  // namespace sparsereel::attention::cuda
