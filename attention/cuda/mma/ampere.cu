// Attention for compute capability 8.0 and newer: int8 scores, P.V in fp16.
#include "attention/cuda/mma/launch.cuh"

namespace sparsereel::attention::cuda {

void launch_ampere(const LaunchContext& context) {
  launch_mma<Kernel::ampere>(context);
}

}  // namespace sparsereel::attention::cuda
