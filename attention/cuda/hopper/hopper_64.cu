// Instantiates the Hopper kernel for head_dim up to 64.
#include "attention/cuda/hopper/kernel.cuh"

namespace sparsereel::attention::cuda::hopper {

template void launch_whole<64>(const LaunchContext& context);
template void launch_shared<64>(const LaunchContext& context);

}  // namespace sparsereel::attention::cuda::hopper
