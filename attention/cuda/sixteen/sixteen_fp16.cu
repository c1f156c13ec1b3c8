// Attention in 16 bits for rows in fp16.
#include "attention/cuda/sixteen/kernel.cuh"

namespace sparsereel::attention::cuda {

void launch_sixteen_fp16(const Call& call) {
  launch_sixteen_type<__half>(call);
}

}  // namespace sparsereel::attention::cuda
