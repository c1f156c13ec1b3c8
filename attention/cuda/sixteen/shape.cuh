// Sizes of the 16-bit kernel (kernel.cuh), and its arithmetic in fp16 or bf16.
#pragma once

#include <type_traits>

#include "attention/cuda/kernel_traits.h"
#include "attention/cuda/mma.cuh"

namespace sparsereel::attention::cuda {

/// The sizes of the kernel for one padded head_dim D. kSkips: P.V may be skipped. Shared memory stays below the 99 KB
/// of sm_86 and sm_89.
template <int D, bool kSkips>
struct SixteenShape {
  static constexpr int kParts = D == 256 ? 3 : 1;  // number of CTAs that share a tile
  static constexpr int kRows = traits_of(Kernel::sixteen).tile_rows / kParts;
  // Number of row tiles (16 rows) of a warp. With more tiles a warp reads less from shared memory per row, but the sums
  // of all tiles must fit into registers. If P.V may be skipped, each group of 64 rows decides together, so no warp may
  // have rows of two groups.
  static constexpr int kRowTiles = D == 64 ? (kSkips ? 2 : 3) : 1;
  static constexpr int kThreads = kRows / (16 * kRowTiles) * 32;
  static constexpr int kKeys = D == 256 ? 32 : 64;   // number of keys in a stage
  static constexpr int kAtOnce = 32;                 // number of keys of a stage that are multiplied together
  static constexpr int kPieces = kRecord / kAtOnce;  // number of such pieces in a block
  static constexpr int kKeyTiles = kAtOnce / 8;
  static constexpr int kChannelTiles = D / 8;
  static constexpr int kStages = 3;
  static constexpr bool kSharesQueries = D == 64;  // true if Q stays in shared memory, which saves registers
  static constexpr int kMinCtas = D == 64 ? 2 : 1;
  static constexpr int kRowBytes = 2 * D;

  struct alignas(1024) Stage {
    uint8_t k[kKeys * kRowBytes];
    uint8_t v[kKeys * kRowBytes];
  };
  struct Stages {
    Stage stages[kStages];
    __device__ uint32_t queries_address() const { return 0; }
  };
  struct StagesAndQueries {
    Stage stages[kStages];
    uint8_t queries[kRows * kRowBytes];
    __device__ uint32_t queries_address() const { return shared_address(queries); }
  };
  using SharedMemoryPlan = std::conditional_t<kSharesQueries, StagesAndQueries, Stages>;
  static constexpr int kSharedBytes = sizeof(SharedMemoryPlan);
  static_assert(kSharedBytes <= 99 * 1024);
};

/// Computes c += a b, with K = 16 values.
template <typename T>
__device__ inline void multiply_sixteen(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    multiply_half(c, a, b0, b1);
  } else {
    multiply_bfloat16(c, a, b0, b1);
  }
}

template <typename T>
__device__ inline uint32_t pack_pair(float x, float y) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(x, y);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

}  // namespace sparsereel::attention::cuda
