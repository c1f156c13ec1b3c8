// Finds how the GPUs of this host are linked. No torch, no NVIDIA headers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sparsereel::app {

struct GpuLinks {
  int64_t gpus = 0;
  int64_t nvlinks = 0;  // active links of the GPU that has the fewest
  std::string problem;  // why the links are unknown; empty if they are known
};

/// Finds the links between GPUs through NVML, which comes with the driver.
GpuLinks find_gpu_links();

/// GB/s that a GPU sends while it receives as much, as measured with all-to-alls of a few hundred MB.
constexpr double kNvlinkSpeed = 340, kPcieSpeed = 25;
/// Returns one of these two speeds; kNvlinkSpeed if the links are unknown.
double link_speed(const GpuLinks& links);

/// Returns a warning for `gpus` of this host that are to make a video together without NVLink. Empty if they have
/// NVLink, or if the links are unknown.
std::string link_warning(const GpuLinks& links, int64_t gpus);

}  // namespace sparsereel::app
