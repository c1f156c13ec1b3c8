// Lists GPUs through the CUDA runtime, and finds out which machine code of this build each GPU would run.
#include "attention/cuda/device.h"

#include <cuda_runtime.h>

namespace sparsereel::attention::cuda {
namespace {

// A kernel that is compiled for every architecture of the build. It never runs: only its attributes are read.
__global__ void probe() {}

void find_machine_code(int device, Gpu& gpu) {
  cudaFuncAttributes attributes{};
  cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, probe);
  if (status != cudaSuccess) {
    gpu.problem = cudaGetErrorString(status);
    return;
  }
  gpu.machine_code = attributes.binaryVersion;
  // If the driver compiled PTX of an older architecture for a newer GPU, ptxVersion is below binaryVersion.
  gpu.compiled_from_ptx = attributes.ptxVersion < attributes.binaryVersion;
}

}  // namespace

std::vector<Gpu> list_gpus(std::string* reason) {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    if (reason != nullptr) *reason = cudaGetErrorString(status);
    return {};
  }
  std::vector<Gpu> gpus(count);
  for (int device = 0; device < count; ++device) {
    Gpu& gpu = gpus[device];
    cudaDeviceProp properties{};
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, device); status != cudaSuccess) {
      gpu.problem = cudaGetErrorString(status);
      continue;
    }
    gpu.name = properties.name;
    find_machine_code(device, gpu);
  }
  return gpus;
}

std::string unusable_reason(int device) {
  const cudaError_t earlier = cudaPeekAtLastError();
  Gpu gpu;
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    gpu.problem = cudaGetErrorString(status);
  } else if (device < 0 || device >= count) {
    gpu.problem = "CUDA sees " + std::to_string(count) + " GPU(s), numbered from 0";
  } else {
    const CurrentDevice current(device);
    find_machine_code(device, gpu);
  }
  if (earlier == cudaSuccess) cudaGetLastError();  // clear our own error, because the caller gets it as a text
  return gpu.problem;
}

bool is_broken() {
  return cudaFree(nullptr) != cudaSuccess;
}

const char* pending_error() {
  const cudaError_t status = cudaPeekAtLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

CurrentDevice::CurrentDevice(int device) {
  int before = 0;
  if (cudaGetDevice(&before) == cudaSuccess && before != device && cudaSetDevice(device) == cudaSuccess)
    before_ = before;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

int compute_capability(int device) {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) return 0;
  return major * 10 + minor;
}

int multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
  return count;
}

}  // namespace sparsereel::attention::cuda
