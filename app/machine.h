// What hardware this is, for people and reports. No torch.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// "AMD EPYC 9B45", or "unknown CPU".
std::string cpu_model();

/// "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64".
std::string operating_system();

/// Of the sources when cmake last looked; "unknown" outside of a git repository.
std::string source_commit();

/// GPUs as the driver lists them, in CUDA's order, without CUDA's toolkit: libcuda.so.1 comes with the driver.
struct GpuDriver {
  bool found = false;
  std::string version;  // of CUDA, "13.0"
  std::vector<std::string> gpus;
};
GpuDriver find_gpu_driver();

}  // namespace sparsereel::app
