// Starts kernels and reports CUDA's errors. Only the return values of our own calls are looked at, so an earlier error
// of the program is neither reported as ours nor cleared.
#pragma once

#include <cuda_runtime.h>

#include <thread>
#include <type_traits>

namespace sparsereel::attention::cuda {

/// The first failure of this thread inside launched().
inline thread_local cudaError_t first_failure = cudaSuccess;

/// Remembers a failure, which launched() reports. Only for use inside launched().
inline void note(cudaError_t status) {
  if (first_failure == cudaSuccess) first_failure = status;
}

/// Starts kernel<<<grid, block, shared_bytes, stream>>>(arguments...). Only for use inside launched().
template <typename... Parameters>
void start(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
           const std::common_type_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  note(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes, stream));
}

/// Allows a kernel to use this many bytes of dynamic shared memory. Only for use inside launched(). In CUDA 13.0 this
/// call clears the thread's last error. If the thread has an error of the program, the call is therefore made in
/// another thread.
template <typename Function>
void allow_shared_bytes(Function* kernel, int bytes) {
  const auto allow = [&] { return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes); };
  if (cudaPeekAtLastError() == cudaSuccess) return note(allow());
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  std::thread([&] {
    if (status == cudaSuccess) status = cudaSetDevice(device);
    if (status == cudaSuccess) status = allow();
  }).join();
  note(status);
}

/// Runs enqueue(), which starts kernels with start() and reports other failures to note(). Returns null or CUDA's
/// message for the first failure. Leaves the runtime's last error as it was, unless there was one already and enqueue()
/// fails too: then the new error replaces it.
template <typename Enqueue>
const char* launched(const Enqueue& enqueue) {
  const cudaError_t earlier = cudaPeekAtLastError();
  first_failure = cudaSuccess;
  enqueue();
  if (first_failure == cudaSuccess) return nullptr;
  if (earlier == cudaSuccess) cudaGetLastError();  // reported here, so it must not reach the next caller
  return cudaGetErrorString(first_failure);
}

}  // namespace sparsereel::attention::cuda
