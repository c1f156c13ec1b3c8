// Attention in 16 bits for rows in bf16.
#include "attention/cuda/sixteen/kernel.cuh"

namespace sparsereel::attention::cuda {

void launch_sixteen_bf16(const Call& call) {
  launch_sixteen_type<__nv_bfloat16>(call);
}

}  // namespace sparsereel::attention::cuda
