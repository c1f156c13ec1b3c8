// Launches the Hopper kernel for the head_dim of a call.
#include "attention/cuda/hopper/kernel.cuh"

namespace sparsereel::attention::cuda {

void launch_hopper(const Call& call) {
  if (call.sizes.D == 64) return hopper::launch_whole<64>(call);
  call.problem.head_dim <= 96 ? hopper::launch_whole<96>(call) : hopper::launch_whole<128>(call);
}

void launch_hopper_shared(const Call& call) {
  if (call.sizes.D == 64) return hopper::launch_shared<64>(call);
  call.problem.head_dim <= 96 ? hopper::launch_shared<96>(call) : hopper::launch_shared<128>(call);
}

}  // namespace sparsereel::attention::cuda
