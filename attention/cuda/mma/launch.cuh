// Launches the kernel of mainloop.cuh for the head_dim of a call.
#pragma once

#include "attention/cuda/launched.cuh"
#include "attention/cuda/mma/mainloop.cuh"

namespace sparsereel::attention::cuda {

template <Kernel kKernel, int D>
void launch_mma_dim(const LaunchContext& context) {
  using Shape = MmaShape<kKernel, D>;
  const auto kernel = attend_mma<kKernel, D>;
  allow_shared_bytes(kernel, Shape::kSharedBytes);
  const auto tiles =
      static_cast<unsigned>(context.sizes.batch_heads) * static_cast<unsigned>(context.sizes.query_tiles);
  context.start(kernel, tiles, Shape::kThreads, Shape::kSharedBytes);
}

template <Kernel kKernel>
void launch_mma(const LaunchContext& context) {
  switch (context.sizes.D) {
    case 64:
      return launch_mma_dim<kKernel, 64>(context);
    case 128:
      return launch_mma_dim<kKernel, 128>(context);
    default:
      return launch_mma_dim<kKernel, 256>(context);
  }
}

}  // namespace sparsereel::attention::cuda
