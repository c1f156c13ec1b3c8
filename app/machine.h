// Describes the hardware for people and reports. Does not use torch.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// Returns the name of the CPU, such as "AMD EPYC 9B45", or "unknown CPU".
std::string cpu_model();

/// Returns the distribution and the kernel, such as "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64".
std::string operating_system();

/// Returns the git commit that the sources had when cmake last ran; "unknown" if they were not in a git repository.
std::string source_commit();

/// The GPUs as the driver lists them, in CUDA's order. Finding them needs no CUDA toolkit, because libcuda.so.1 comes
/// with the driver.
struct GpuDriver {
  bool found = false;
  std::string version;            // the CUDA version that the driver supports: "13.0"
  std::vector<std::string> gpus;  // names
};
GpuDriver find_gpu_driver();

}  // namespace sparsereel::app
