// How functions that enqueue kernels report what CUDA says.
#pragma once

#include <cuda_runtime.h>

namespace sparsereel::attention::cuda {

/// Runs enqueue(). Returns null, or what CUDA said of it; an earlier failure is not its own.
template <typename Enqueue>
const char* launched(const Enqueue& enqueue) {
  cudaGetLastError();
  enqueue();
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

}  // namespace sparsereel::attention::cuda
