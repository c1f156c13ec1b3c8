// Pieces of V records: e4m3 in fours, their sums, and the rows of ones.
#pragma once

#include <cuda_fp8.h>

#include "attention/cuda/mma.cuh"
#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

__device__ inline uint32_t e4m3x4(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  return pack_e4m3(a, b, c, d);
#else
  return 0;  // no kernel for this target reads e4m3
#endif
}

/// 16 keys of a row of ones. kByResidue: 1 for keys with key % 8 = row; else for all keys in the rows of a set
/// (records.h). left: real keys from the record's start on.
template <int D, bool kByResidue>
__device__ inline uint4 ones(int row, int chunk, int left) {
  constexpr uint32_t kOne = 0x38;
  const bool in_set = ones_sets(D) == 1 || row / 4 % 2 == row / kOnesRows;
  if (!kByResidue && left >= kRecord) {
    const uint32_t four = in_set ? kOne * 0x01010101U : 0;
    return make_uint4(four, four, four, four);
  }
  uint32_t word[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int key = chunk * 16 + i, position = value_position(i);
    if (key < left && (kByResidue ? i % 8 == row : in_set)) word[position / 4] |= kOne << 8 * (position % 4);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

constexpr float kHalfMax = 65504;

__device__ inline __half2 halves_of(uint32_t two_e4m3) {
  return __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two_e4m3), __NV_E4M3));
}

/// Of the 64 e4m3 of a row, of which four neighbouring lanes hold 16 each.
struct RowSums {
  float sum, sizes, largest;  // of their sizes

  /// lanes: of the warp that call this together.
  __device__ explicit RowSums(const uint4& e4m3, unsigned lanes = ~0U) {
    __half2 total{}, size{}, most{};
    const auto add = [&](uint32_t two) {
      const __half2 x = halves_of(two), its_size = __habs2(x);
      total = __hadd2(total, x);
      size = __hadd2(size, its_size);
      most = __hmax2(most, its_size);
    };
    for (const uint32_t four : {e4m3.x, e4m3.y, e4m3.z, e4m3.w}) {
      add(four & 0xFFFFU);
      add(four >> 16);
    }
    sum = __low2float(total) + __high2float(total);
    __half2 both =
        __halves2half2(__hadd(__low2half(size), __high2half(size)), __hmax(__low2half(most), __high2half(most)));
#pragma unroll
    for (int lane = 1; lane < 4; lane *= 2) {
      sum += __shfl_xor_sync(lanes, sum, lane);
      const __half2 other = __shfl_xor_sync(lanes, both, lane);
      both = __halves2half2(__hadd(__low2half(both), __low2half(other)), __hmax(__high2half(both), __high2half(other)));
    }
    sizes = __low2float(both);
    largest = __high2float(both);
  }
};

}  // namespace sparsereel::attention::cuda
