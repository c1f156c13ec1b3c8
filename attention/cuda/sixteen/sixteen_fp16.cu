// Attention in 16 bits for rows in fp16.
#include "attention/cuda/sixteen/kernel.cuh"

namespace sparsereel::attention::cuda {

void launch_sixteen_fp16(const LaunchContext& context) {
  launch_sixteen_type<__half>(context);
}

}  // namespace sparsereel::attention::cuda
