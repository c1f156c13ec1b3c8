// Describes the hardware for people and reports. No torch.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// Returns "AMD EPYC 9B45", or "unknown CPU".
std::string cpu_model();

/// Returns "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64".
std::string operating_system();

/// Returns the commit of the sources when cmake last ran; "unknown" outside of a git repository.
std::string source_commit();

/// The GPUs as the driver lists them, in CUDA's order. Needs no CUDA toolkit, because libcuda.so.1 comes with the
/// driver.
struct GpuDriver {
  bool found = false;
  std::string version;  // CUDA version: "13.0"
  std::vector<std::string> gpus;
};
GpuDriver find_gpu_driver();

}  // namespace sparsereel::app
