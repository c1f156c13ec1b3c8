// Products of pooled queries and pooled keys on tensor cores.
#pragma once

#include <cuda_bf16.h>

#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

constexpr int kPooledRows = 16;  // of the tensor core's m16n8k16

/// A warp's 16 rows of pooled queries, as bf16; a lane holds parts of the rows lane / 4 and lane / 4 + 8. The order of
/// the depth is free as long as both sides agree, so a lane takes 8 consecutive elements of every 32 for two
/// multiplications.
template <int D>
class PooledRows {
 public:
  /// rows: `stride` elements apart. From row `real` on they are not read, but zeros.
  __device__ PooledRows(const __nv_bfloat16* rows, int stride, int real) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4;
    const __nv_bfloat16* from = rows + row * stride + lane % 4 * 8;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      low_[k] = row < real ? *reinterpret_cast<const uint4*>(from + k * 32) : uint4{};
      high_[k] = row + 8 < real ? *reinterpret_cast<const uint4*>(from + 8 * stride + k * 32) : uint4{};
    }
  }

  /// c = rows times the 8 pooled keys from block `first` of a head on, laid out by pooled_offset(). c[i] belongs to row
  /// lane / 4 + i / 2 * 8 and key first + lane % 4 * 2 + i % 2.
  __device__ void multiply(const uint16_t* keys, int first, float (&c)[4]) const {
    const uint16_t* from = keys + static_cast<int64_t>(first) * D + threadIdx.x % 32 * 8;
    uint4 part[D / 32];
#pragma unroll
    for (int k = 0; k < D / 32; ++k) part[k] = __ldg(reinterpret_cast<const uint4*>(from + k * 256));
    c[0] = c[1] = c[2] = c[3] = 0;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      step(c, low_[k].x, high_[k].x, low_[k].y, high_[k].y, part[k].x, part[k].y);
      step(c, low_[k].z, high_[k].z, low_[k].w, high_[k].w, part[k].z, part[k].w);
    }
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
