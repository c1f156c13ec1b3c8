// The kernel for compute capability 9.0: int8 Q.K and e4m3 P.V by warpgroup matrix instructions, persistent CTAs. Each
// head_dim is compiled by itself.
#pragma once

#include <algorithm>

#include "attention/cuda/hopper/consumer.cuh"
#include "attention/cuda/launched.cuh"

namespace sparsereel::attention::cuda::hopper {

/// kMeans: lists may hold means.
template <int D, bool kCausal, bool kSkips, bool kParts, bool kMeans>
__global__ void __launch_bounds__(Tile<D>::kThreads, 1)
    hopper_attention(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                     const __grid_constant__ Buffers buffers) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Tile<D>;
  constexpr bool kBusyProducer = D == 64 && !kSkips;  // and consumers that do with less; multiples of 8, 65536 in all
  extern __shared__ __align__(1024) uint8_t shared[];
  if (threadIdx.x == 0) Barriers<T>{shared_address(shared) + T::kBarriers}.init();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * T::kMeanBytes / 16; i += T::kThreads)
    reinterpret_cast<uint4*>(shared + T::kMeanRing)[i] = {};  // whatever is not loaded meets zeros, and must be finite
  ptx::bulk_copy_fence();
  __syncthreads();
  if (threadIdx.x / 128 == T::kWarpgroups) {
    ptx::give_registers<kBusyProducer ? 56 : 32>();
    if (threadIdx.x % 128 == 0) Producer<T, kParts, kMeans>(sizes, buffers, shared).run();
  } else {
    ptx::take_registers<kBusyProducer ? 152 : 160>();
    Consumer<T, kCausal, kSkips, kParts, kMeans>(p, sizes, buffers, shared).run();
  }
#else
  __trap();
#endif
}

/// The sum of the parts of a shared tile.
template <int D>
__global__ void __launch_bounds__(128 * Tile<D>::kWarpgroups, 1)
    add_parts(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
              const __grid_constant__ Buffers buffers) {
  using T = Tile<D>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const int tile = static_cast<int>(blockIdx.x);
  Output<T> output(p, sizes, buffers, shared);
  float shift[2];
  output.add_parts(sizes.shares.first_slot(tile), sizes.shares.last_slot(tile), shift);
  output.write(TileIndex(sizes, sizes.whole_tiles + tile), shift);
}

template <typename Function>
void run(Function* kernel, int grid, int threads, int bytes, const Call& call) {
  allow_shared_bytes(kernel, bytes);
  start(kernel, static_cast<unsigned>(grid), threads, bytes, call.stream, call.problem, call.sizes, call.buffers);
}

template <int D, bool kMeans>
void launch_whole(const Call& call) {
  using T = Tile<D>;
  if (call.sizes.whole_tiles == 0) return;
  const int grid = std::min(call.sizes.whole_tiles, call.sizes.shares.processors);
  const auto attend = [&](auto* kernel) { run(kernel, grid, T::kThreads, T::kBytes, call); };
  const bool skips = call.problem.selection.skips_pv;
  if (!call.problem.causal) {
    skips ? attend(hopper_attention<D, false, true, false, kMeans>)
          : attend(hopper_attention<D, false, false, false, kMeans>);
  } else if (skips || kMeans) {  // means under a causal mask are no one's usual case
    attend(hopper_attention<D, true, true, false, kMeans>);
  } else if constexpr (!kMeans) {
    attend(hopper_attention<D, true, false, false, false>);
  }
}

template <int D, bool kMeans>
void launch_shared(const Call& call) {
  using T = Tile<D>;
  const auto attend = [&](auto* kernel) { run(kernel, call.sizes.shares.processors, T::kThreads, T::kBytes, call); };
  call.problem.selection.skips_pv ? attend(hopper_attention<D, false, true, true, kMeans>)
                                  : attend(hopper_attention<D, false, false, true, kMeans>);
  run(add_parts<D>, call.sizes.shares.tiles, 128 * T::kWarpgroups, T::kRows * T::kRowBytes, call);
}

template <int D>
void launch_whole(const Call& call) {
  call.sizes.mean_records > 0 ? launch_whole<D, true>(call) : launch_whole<D, false>(call);
}

template <int D>
void launch_shared(const Call& call) {
  call.sizes.mean_records > 0 ? launch_shared<D, true>(call) : launch_shared<D, false>(call);
}

// Instantiated in hopper_64.cu, hopper_96.cu and hopper_128.cu.
extern template void launch_whole<64>(const Call& call);
extern template void launch_shared<64>(const Call& call);
extern template void launch_whole<96>(const Call& call);
extern template void launch_shared<96>(const Call& call);
extern template void launch_whole<128>(const Call& call);
extern template void launch_shared<128>(const Call& call);

}  // namespace sparsereel::attention::cuda::hopper
