// The kernel for compute capability 9.0: int8 Q.K and e4m3 P.V by warpgroup matrix instructions, persistent CTAs.
#include <algorithm>

#include "attention/cuda/hopper_consumer.cuh"

namespace sparsereel::attention::cuda {
namespace {

/// kMeans: lists may hold means, which costs nothing where they don't, but for registers under a causal mask.
template <int D, bool kCausal, bool kSkips, bool kParts, bool kMeans = true>
__global__ void __launch_bounds__(hopper::Tile<D>::kThreads, 1)
    hopper_attention(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                     const __grid_constant__ Buffers buffers) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = hopper::Tile<D>;
  constexpr bool kBusyProducer = D == 64 && !kSkips;  // and consumers that do with less; multiples of 8, 65536 in all
  extern __shared__ __align__(1024) uint8_t shared[];
  if (threadIdx.x == 0) hopper::Barriers<T>{shared_address(shared) + T::kBarriers}.init();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * T::kMeanBytes / 16; i += T::kThreads)
    reinterpret_cast<uint4*>(shared + T::kMeanRing)[i] = {};  // whatever is not loaded meets zeros, and must be finite
  ptx::bulk_copy_fence();
  __syncthreads();
  if (threadIdx.x / 128 == T::kWarpgroups) {
    ptx::give_registers<kBusyProducer ? 56 : 32>();
    if (threadIdx.x % 128 == 0) hopper::Producer<T, kParts>(sizes, buffers, shared).run();
  } else {
    ptx::take_registers<kBusyProducer ? 152 : 160>();
    hopper::Consumer<T, kCausal, kSkips, kParts, kMeans>(p, sizes, buffers, shared).run();
  }
#else
  __trap();
#endif
}

/// The sum of the parts of a shared tile.
template <int D>
__global__ void __launch_bounds__(128 * hopper::Tile<D>::kWarpgroups, 1)
    add_parts(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
              const __grid_constant__ Buffers buffers) {
  using T = hopper::Tile<D>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const int tile = static_cast<int>(blockIdx.x);
  hopper::Output<T> output(p, buffers, shared);
  float shift[2];
  output.add_parts(sizes.shares.first_slot(tile), sizes.shares.last_slot(tile), shift);
  output.write(hopper::TileIndex(sizes, sizes.whole_tiles + tile), shift);
}

template <typename Function>
void run(Function* kernel, int grid, int threads, int bytes, const Call& call) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<static_cast<unsigned>(grid), threads, bytes, call.stream>>>(call.problem, call.sizes, call.buffers);
}

template <int D>
void launch_whole(const Call& call) {
  using T = hopper::Tile<D>;
  if (call.sizes.whole_tiles == 0) return;
  const int grid = std::min(call.sizes.whole_tiles, call.sizes.shares.processors);
  const auto attend = [&](auto* kernel) { run(kernel, grid, T::kThreads, T::kBytes, call); };
  const bool skips = call.problem.selection.skips_pv;
  if (call.problem.causal && call.sizes.mean_records > 0) {
    attend(hopper_attention<D, true, true, false>);
  } else if (call.problem.causal) {
    skips ? attend(hopper_attention<D, true, true, false, false>)
          : attend(hopper_attention<D, true, false, false, false>);
  } else {
    skips ? attend(hopper_attention<D, false, true, false>) : attend(hopper_attention<D, false, false, false>);
  }
}

template <int D>
void launch_shared(const Call& call) {
  using T = hopper::Tile<D>;
  const auto attend = [&](auto* kernel) { run(kernel, call.sizes.shares.processors, T::kThreads, T::kBytes, call); };
  call.problem.selection.skips_pv ? attend(hopper_attention<D, false, true, true>)
                                  : attend(hopper_attention<D, false, false, true>);
  run(add_parts<D>, call.sizes.shares.tiles, 128 * T::kWarpgroups, T::kRows * T::kRowBytes, call);
}

}  // namespace

void launch_hopper(const Call& call) {
  call.sizes.D == 64 ? launch_whole<64>(call) : launch_whole<128>(call);
}

void launch_hopper_shared(const Call& call) {
  call.sizes.D == 64 ? launch_shared<64>(call) : launch_shared<128>(call);
}

}  // namespace sparsereel::attention::cuda
