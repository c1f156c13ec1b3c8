// Launches the mma kernel for the head_dim of a call.
#pragma once

#include "attention/cuda/launched.cuh"
#include "attention/cuda/mma/mainloop.cuh"

namespace sparsereel::attention::cuda {

template <Kernel kKernel, int D>
void launch_mma_dim(const Call& call) {
  using Shape = MmaShape<kKernel, D>;
  const auto kernel = attend_mma<kKernel, D>;
  allow_shared_bytes(kernel, Shape::kSharedBytes);
  const auto tiles = static_cast<unsigned>(call.sizes.batch_heads) * static_cast<unsigned>(call.sizes.query_tiles);
  start(kernel, tiles, Shape::kThreads, Shape::kSharedBytes, call.stream, call.problem, call.sizes, call.buffers);
}

template <Kernel kKernel>
void launch_mma(const Call& call) {
  switch (call.sizes.D) {
    case 64:
      return launch_mma_dim<kKernel, 64>(call);
    case 128:
      return launch_mma_dim<kKernel, 128>(call);
    default:
      return launch_mma_dim<kKernel, 256>(call);
  }
}

}  // namespace sparsereel::attention::cuda
