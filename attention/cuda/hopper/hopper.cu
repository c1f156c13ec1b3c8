// Launches the Hopper kernel for the head_dim of a call.
#include "attention/cuda/hopper/kernel.cuh"

namespace sparsereel::attention::cuda {

void launch_hopper(const LaunchContext& context) {
  if (context.sizes.D == 64) return hopper::launch_whole<64>(context);
  context.params.head_dim <= 96 ? hopper::launch_whole<96>(context) : hopper::launch_whole<128>(context);
}

void launch_hopper_shared(const LaunchContext& context) {
  if (context.sizes.D == 64) return hopper::launch_shared<64>(context);
  context.params.head_dim <= 96 ? hopper::launch_shared<96>(context) : hopper::launch_shared<128>(context);
}

}  // namespace sparsereel::attention::cuda
