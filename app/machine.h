// What hardware this is, for people and reports. No torch.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// "AMD EPYC 9B45", or "unknown CPU".
std::string cpu_model();

/// GPUs as the driver lists them, in CUDA's order, without CUDA's toolkit: libcuda.so.1 comes with the driver.
struct GpuDriver {
  bool found = false;
  std::string version;  // of CUDA, "13.0"
  std::vector<std::string> gpus;
};
GpuDriver find_gpu_driver();

}  // namespace sparsereel::app
