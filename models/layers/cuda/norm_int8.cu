// Instantiates the norm kernels whose results are int8.
#include "models/layers/cuda/norm.cuh"

namespace sparsereel::models::cuda::norms {

template const char* run<true>(const NormModulate& p, Stream stream);

}  // namespace sparsereel::models::cuda::norms
