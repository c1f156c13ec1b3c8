// Attention for compute capability 8.0 and newer: int8 scores, P.V in int8.
#include "attention/cuda/mma/launch.cuh"

namespace sparsereel::attention::cuda {

void launch_ada(const LaunchContext& context) {
  launch_mma<Kernel::ada>(context);
}

}  // namespace sparsereel::attention::cuda
