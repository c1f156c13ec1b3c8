// Starting kernels, and reporting what CUDA says of them: what the calls themselves return, so that an error that the
// program has left behind is neither taken for one of them nor taken away.
#pragma once

#include <cuda_runtime.h>

#include <thread>
#include <type_traits>

namespace sparsereel::attention::cuda {

/// Within launched(), of this thread: the first failure so far.
inline thread_local cudaError_t first_failure = cudaSuccess;

/// Within launched(): keeps a failure for it to report.
inline void note(cudaError_t status) {
  if (first_failure == cudaSuccess) first_failure = status;
}

/// Within launched(): kernel<<<grid, block, shared_bytes, stream>>>(arguments...).
template <typename... Parameters>
void start(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
           const std::common_type_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  note(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers, shared_bytes, stream));
}

/// Within launched(): lets a kernel have so many bytes of dynamic shared memory. The runtime (13.0) takes the thread's
/// last error away on that occasion: where there is one, another thread asks.
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

/// Runs enqueue(), which starts kernels with start() and notes what else may fail. Returns null, or what CUDA said
/// first. The runtime's last error is afterwards what it was, unless a failure of ours has taken its place.
template <typename Enqueue>
const char* launched(const Enqueue& enqueue) {
  const cudaError_t earlier = cudaPeekAtLastError();
  first_failure = cudaSuccess;
  enqueue();
  if (first_failure == cudaSuccess) return nullptr;
  if (earlier == cudaSuccess) cudaGetLastError();  // reported here, not to whoever asks next
  return cudaGetErrorString(first_failure);
}

}  // namespace sparsereel::attention::cuda
