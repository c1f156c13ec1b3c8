// Launches the norm kernels, and instantiates those whose results are not int8.
#include "models/layers/cuda/norm.cuh"

namespace sparsereel::models::cuda {

const char* norm_modulate(const NormModulate& p, Stream stream) {
  if (p.batch == 0 || p.tokens == 0) return nullptr;
  const bool int8 = p.out_scale != nullptr && p.to.int8;
  return int8 ? norms::run<true>(p, stream) : norms::run<false>(p, stream);
}

}  // namespace sparsereel::models::cuda
