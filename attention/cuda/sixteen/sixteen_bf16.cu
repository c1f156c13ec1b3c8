// Attention in 16 bits for rows in bf16.
#include "attention/cuda/sixteen/kernel.cuh"

namespace sparsereel::attention::cuda {

void launch_sixteen_bf16(const LaunchContext& context) {
  launch_sixteen_type<__nv_bfloat16>(context);
}

}  // namespace sparsereel::attention::cuda
