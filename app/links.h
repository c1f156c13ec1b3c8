// Finds how the GPUs of this host are linked. Includes neither torch nor NVIDIA's headers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sparsereel::app {

struct GpuLinks {
  int64_t gpus = 0;
  int64_t nvlinks = 0;  // active NVLinks of the GPU that has the fewest
  std::string problem;  // why the links are unknown; empty if they are known
};

/// Asks NVML, which comes with the driver, for the links between GPUs.
GpuLinks find_gpu_links();

/// The speeds in GB/s at which a GPU sends while it receives as much, measured in all-to-all exchanges of a few hundred
/// MB.
constexpr double kNvlinkSpeed = 340, kPcieSpeed = 25;
/// Returns kPcieSpeed if this host has several GPUs without NVLink. Otherwise, or if the links are unknown, returns
/// kNvlinkSpeed.
double link_speed(const GpuLinks& links);

/// Returns a warning if `gpus` GPUs of this host are to make a video together without NVLink. Returns an empty string
/// if they have NVLink, or if the links are unknown.
std::string link_warning(const GpuLinks& links, int64_t gpus);

}  // namespace sparsereel::app
