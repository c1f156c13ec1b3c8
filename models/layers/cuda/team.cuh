// Teams of warps that share a row, and their sums and maxima.
#pragma once

#include <type_traits>

#include "attention/cuda/packed.cuh"
#include "attention/cuda/warp.cuh"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {

constexpr int kThreads = 256, kWarps = kThreads / 32;  // per thread block

/// The kTeam warps that share a row, including this one. Other teams of the block's kBlockWarps warps take other rows.
template <int kTeam, int kBlockWarps = kWarps>
class Team {
 public:
  // exchange() uses the barrier with the number 1 + index(). If a barrier's number is not a constant, the compiler
  // reserves all 16 barriers for the block. So with a single team, the index is the constant 0.
  static __device__ int index() { return kTeam == kBlockWarps ? 0 : static_cast<int>(threadIdx.x) / (32 * kTeam); }
  static __device__ int member() { return static_cast<int>(threadIdx.x) / 32 % kTeam; }

  /// Returns the sum of x over the team. All threads of the team must call this together; all get the result.
  __device__ float sum(float x) {
    x = attention::cuda::warp_sum(x);
    if constexpr (kTeam == 1) return x;
    const float* of_warps = exchange(x);
    float total = 0;
#pragma unroll
    for (int i = 0; i < kTeam; ++i) total += of_warps[i];
    return total;
  }
  __device__ float max(float x) {
    x = attention::cuda::warp_max(x);
    if constexpr (kTeam == 1) return x;
    const float* of_warps = exchange(x);
#pragma unroll
    for (int i = 0; i < kTeam; ++i) x = fmaxf(x, of_warps[i]);
    return x;
  }

 private:
  /// Shares each warp's number with the team; returns the team's numbers. Calls alternate between two arrays. Before a
  /// warp writes to an array again, it has passed the barrier of the call for the other array. So all warps have read
  /// the old numbers by then.
  __device__ const float* exchange(float x) {
    __shared__ float of_warps[2][kBlockWarps];
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) of_warps[turn_][threadIdx.x / 32] = x;
    asm volatile("bar.sync %0, %1;" ::"r"(1 + index()), "n"(32 * kTeam) : "memory");
    return of_warps[turn_] + index() * kTeam;
  }

  int turn_ = 0;
};

/// Chooses how a block of kThreads threads holds rows of this many channels. Calls f(warps per row, packs of eight
/// elements per thread), both as compile-time constants.
template <typename F>
void for_row_shape(int channels, const F& f) {
  constexpr int warp = 32 * attention::cuda::kLaneElements, block = kThreads * attention::cuda::kLaneElements;
  constexpr std::integral_constant<int, 1> one{};
  constexpr std::integral_constant<int, kWarps> all{};
  if (channels <= 4 * warp) return f(one, std::integral_constant<int, 4>());
  if (channels <= 8 * warp) return f(one, std::integral_constant<int, 8>());
  if (channels <= 2 * block) return f(all, std::integral_constant<int, 2>());
  if (channels <= 4 * block) return f(all, std::integral_constant<int, 4>());
  if (channels <= 6 * block) return f(all, std::integral_constant<int, 6>());
  f(all, std::integral_constant<int, kMaxQuantizeChannels / block>());
}

}  // namespace sparsereel::models::cuda
