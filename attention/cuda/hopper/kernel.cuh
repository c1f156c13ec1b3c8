// The kernel for compute capability 9.0: int8 Q.K and e4m3 P.V by warpgroup matrix instructions, in persistent CTAs.
// Each head_dim is compiled separately.
#pragma once

#include <algorithm>

#include "attention/cuda/hopper/consumer.cuh"
#include "attention/cuda/launched.cuh"

namespace sparsereel::attention::cuda::hopper {

/// kSkips: P.V may be skipped. kParts: tiles are split into parts. kMeans: records of means may follow the key blocks
/// in a tile's list.
template <int D, bool kCausal, bool kSkips, bool kParts, bool kMeans>
__global__ void __launch_bounds__(Tile<D>::kThreads, 1)
    hopper_attention(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                     const __grid_constant__ Buffers buffers) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Tile<D>;
  // With head_dim 64 the stages are small, so the producer must fill more of them in the same time. It then keeps 56
  // registers instead of 32, and each consumer thread gets 152 instead of 160. The variants with kSkips do not do this,
  // because their consumers use more registers. The number per thread must be a multiple of 8, and the CTA's 512
  // threads together have 65536 registers.
  constexpr bool kBusyProducer = D == 64 && !kSkips;
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<SharedMemoryPlan<T>*>(memory);
  if (threadIdx.x == 0) Addresses<T>(shared).init_barriers();
  // add_means() multiplies parts of the ring of means that are not loaded yet by sums of 0. These parts must hold
  // finite numbers, because 0 times NaN would be NaN.
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(shared.output.means) / 16); i += T::kThreads)
    reinterpret_cast<uint4*>(shared.output.means)[i] = {};
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

/// Adds up the parts of a split tile (shares.h), and writes the tile's output rows.
template <int D>
__global__ void __launch_bounds__(128 * Tile<D>::kWarpgroups, 1)
    add_parts(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
              const __grid_constant__ Buffers buffers) {
  using T = Tile<D>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const int tile = static_cast<int>(blockIdx.x);
  Output<T> output(p, sizes, buffers, *reinterpret_cast<OutputMemory<T>*>(memory));
  float shift[2];
  output.add_parts(sizes.shares.first_slot(tile), sizes.shares.last_slot(tile), shift);
  output.write(TileIndex(sizes, sizes.whole_tiles + tile), shift);
}

template <typename Function>
void run(Function* kernel, int grid, int threads, int bytes, const LaunchContext& context) {
  allow_shared_bytes(kernel, bytes);
  context.start(kernel, static_cast<unsigned>(grid), threads, bytes);
}

template <int D, bool kMeans>
void launch_whole(const LaunchContext& context) {
  using T = Tile<D>;
  if (context.sizes.whole_tiles == 0) return;
  const int grid = std::min(context.sizes.whole_tiles, context.sizes.shares.processors);
  const auto attend = [&](auto* kernel) { run(kernel, grid, T::kThreads, shared_bytes<T>(), context); };
  const bool skips = context.params.selection.skips_pv;
  if (!context.params.causal) {
    skips ? attend(hopper_attention<D, false, true, false, kMeans>)
          : attend(hopper_attention<D, false, false, false, kMeans>);
  } else if (skips || kMeans) {  // causal calls with means are rare: no variant without kSkips
    attend(hopper_attention<D, true, true, false, kMeans>);
  } else if constexpr (!kMeans) {
    attend(hopper_attention<D, true, false, false, false>);
  }
}

template <int D, bool kMeans>
void launch_shared(const LaunchContext& context) {
  using T = Tile<D>;
  const auto attend = [&](auto* kernel) {
    run(kernel, context.sizes.shares.processors, T::kThreads, shared_bytes<T>(), context);
  };
  context.params.selection.skips_pv ? attend(hopper_attention<D, false, true, true, kMeans>)
                                    : attend(hopper_attention<D, false, false, true, kMeans>);
  run(add_parts<D>, context.sizes.shares.tiles, 128 * T::kWarpgroups, sizeof(OutputMemory<T>::rows), context);
}

template <int D>
void launch_whole(const LaunchContext& context) {
  context.sizes.mean_records > 0 ? launch_whole<D, true>(context) : launch_whole<D, false>(context);
}

template <int D>
void launch_shared(const LaunchContext& context) {
  context.sizes.mean_records > 0 ? launch_shared<D, true>(context) : launch_shared<D, false>(context);
}

// Instantiated in hopper_64.cu, hopper_96.cu and hopper_128.cu.
extern template void launch_whole<64>(const LaunchContext& context);
extern template void launch_shared<64>(const LaunchContext& context);
extern template void launch_whole<96>(const LaunchContext& context);
extern template void launch_shared<96>(const LaunchContext& context);
extern template void launch_whole<128>(const LaunchContext& context);
extern template void launch_shared<128>(const LaunchContext& context);

}  // namespace sparsereel::attention::cuda::hopper
