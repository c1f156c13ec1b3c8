// Instantiates the Hopper kernel for head_dim up to 128.
#include "attention/cuda/hopper/kernel.cuh"

namespace sparsereel::attention::cuda::hopper {

template void launch_whole<128>(const LaunchContext& context);
template void launch_shared<128>(const LaunchContext& context);

}  // namespace sparsereel::attention::cuda::hopper
