// How the GPUs of this host are joined. No torch, no header of NVIDIA's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sparsereel::app {

struct GpuLinks {
  int64_t gpus = 0;
  int64_t nvlinks = 0;  // active ones of the GPU that has the fewest
  std::string problem;  // why nothing is known
};

/// By NVML, which comes with the driver.
GpuLinks find_gpu_links();

/// Gigabytes a second that a GPU sends while it receives as many: what all-to-alls of a few hundred MB reach.
constexpr double kNvlinkSpeed = 340, kPcieSpeed = 25;
double link_speed(const GpuLinks& links);

/// To warn of before `gpus` of this host make a video together: they have no NVLink. Empty: they have, or it is
/// unknown.
std::string link_warning(const GpuLinks& links, int64_t gpus);

}  // namespace sparsereel::app
