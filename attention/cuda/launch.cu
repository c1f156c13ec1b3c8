// The steps of a call in their order.
#include <cuda_runtime.h>

#include "attention/cuda/kernels.h"

namespace sparsereel::attention::cuda {
namespace {

const char* last_error() {
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

}  // namespace

std::optional<Kernel> choose_kernel(int compute_capability, int head_dim) {
#ifdef SPARSEREEL_HOPPER
  if (compute_capability == 90 && head_dim <= 128) return Kernel::hopper;
#endif
  (void)head_dim;
  if (compute_capability >= 89) return Kernel::ada;
  if (compute_capability >= 80) return Kernel::ampere;
  return std::nullopt;
}

size_t scratch_bytes(const Problem& problem, Kernel kernel) {
  return Buffers(problem, Sizes(problem, kernel), nullptr).bytes;
}

const char* attention(const Problem& problem, Kernel kernel, Steps steps, void* scratch, Stream stream) {
  cudaGetLastError();  // an earlier failure is not this call's
  const Sizes sizes(problem, kernel);
  const Buffers buffers(problem, sizes, scratch);
  const Call call{problem, sizes, buffers, stream};
  launch_token_moments(call);
  launch_statistics(call);
  launch_quantise_queries(call);
  launch_quantise_keys(call);
  kernel == Kernel::ampere ? launch_half_values(call) : launch_quantise_values(call);
  launch_select(call);
  launch_lists(call, tile_rows(kernel));
  if (steps == Steps::prepass) return last_error();
  switch (kernel) {
    case Kernel::hopper:
      launch_hopper(call);
      break;
    case Kernel::ada:
      launch_ada(call);
      break;
    case Kernel::ampere:
      launch_ampere(call);
      break;
  }
  return last_error();
}

}  // namespace sparsereel::attention::cuda
