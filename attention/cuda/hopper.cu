// The kernel for compute capability 9.0: int8 Q.K and e4m3 P.V by warpgroup matrix instructions, persistent CTAs.
#include "attention/cuda/hopper_consumer.cuh"

namespace sparsereel::attention::cuda {
namespace {

template <int D, bool kCausal, bool kSkips>
__global__ void __launch_bounds__(hopper::Tile<D>::kThreads, 1)
    hopper_attention(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                     const __grid_constant__ Buffers buffers) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = hopper::Tile<D>;
  extern __shared__ __align__(1024) uint8_t shared[];
  if (threadIdx.x == 0) hopper::Barriers<T>{ptx::shared_address(shared) + T::kBarriers}.init();
  __syncthreads();
  if (threadIdx.x / 128 == T::kWarpgroups) {
    ptx::give_registers<T::kProducerRegisters>();
    if (threadIdx.x % 128 == 0) hopper::Producer<T>(sizes, buffers, shared).run();
  } else {
    ptx::take_registers<T::kConsumerRegisters>();
    hopper::Consumer<T, kCausal, kSkips>(p, sizes, buffers, shared).run();
  }
#else
  __trap();
#endif
}

template <int D>
void launch(const Call& call) {
  using T = hopper::Tile<D>;
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t tiles = static_cast<int64_t>(call.sizes.batch_heads) * call.sizes.query_tiles;
  const unsigned grid = static_cast<unsigned>(tiles < processors ? tiles : processors);
  const auto run = [&](auto* kernel) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
    kernel<<<grid, T::kThreads, T::kBytes, call.stream>>>(call.problem, call.sizes, call.buffers);
  };
  const bool skips = call.problem.selection.skips_pv;
  if (call.problem.causal) {
    skips ? run(hopper_attention<D, true, true>) : run(hopper_attention<D, true, false>);
  } else {
    skips ? run(hopper_attention<D, false, true>) : run(hopper_attention<D, false, false>);
  }
}

}  // namespace

void launch_hopper(const Call& call) {
  call.sizes.D == 64 ? launch<64>(call) : launch<128>(call);
}

}  // namespace sparsereel::attention::cuda
