// Attention for compute capability 8.0 and newer: int8 scores, P.V in fp16. It errs less than ada.cu and takes longer.
#include "attention/cuda/mma/launch.cuh"

namespace sparsereel::attention::cuda {

void launch_ampere(const LaunchContext& context) {
  launch_mma<Kernel::ampere>(context);
}

}  // namespace sparsereel::attention::cuda
