// Loads NVML by dlopen, so that the program also runs on a machine without a driver.
#include "app/links.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>

#include "app/lab/measure/ranks_cost.h"

namespace sparsereel::app {
namespace {

constexpr unsigned kMostLinks = 18;  // the most NVLinks that a GPU has

/// The functions of NVML that are used here; they return 0 on success.
struct Nvml {
  int (*start)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, void**) = nullptr;
  int (*link_state)(void*, unsigned, unsigned*) = nullptr;

  bool load() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto find = [&]<typename Function>(const char* name, Function*& function) {
      function = reinterpret_cast<Function*>(dlsym(library, name));
      return function != nullptr;
    };
    return find("nvmlInit_v2", start) && find("nvmlDeviceGetCount_v2", count) &&
           find("nvmlDeviceGetHandleByIndex_v2", device) && find("nvmlDeviceGetNvLinkState", link_state);
  }
};

int64_t active_links(const Nvml& nvml, void* device) {
  int64_t active = 0;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned state = 0;
    active += nvml.link_state(device, link, &state) == 0 && state == 1 ? 1 : 0;
  }
  return active;
}

}  // namespace

GpuLinks find_gpu_links() {
  GpuLinks links;
  Nvml nvml;
  unsigned count = 0;
  if (!nvml.load() || nvml.start() != 0 || nvml.count(&count) != 0) {
    links.problem = "NVML of the driver (libnvidia-ml.so.1) does not answer";
    return links;
  }
  links.gpus = count;
  links.nvlinks = kMostLinks;
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    if (nvml.device(i, &device) != 0) continue;
    links.nvlinks = std::min(links.nvlinks, active_links(nvml, device));
  }
  if (count == 0) links.nvlinks = 0;
  return links;
}

double link_speed(const GpuLinks& links) {
  return links.problem.empty() && links.gpus > 1 && links.nvlinks == 0 ? kPcieSpeed : kNvlinkSpeed;
}

std::string link_warning(const GpuLinks& links, int64_t gpus) {
  if (gpus < 2 || !links.problem.empty() || links.gpus < 2 || links.nvlinks > 0) return {};
  // The example of a large video: a published model of 14 billion weights (40 layers of 40 heads) at 480p, which takes
  // 5.2 s per step on one H100.
  const VideoCost video{.tokens = 32760, .layers = 40, .heads = 40, .channels = 5120, .passes = 2, .step_ms = 5180};
  const double slow = cost_over_ranks(video, gpus, kPcieSpeed).step_ms;
  const double fast = cost_over_ranks(video, gpus, kNvlinkSpeed).step_ms;
  return "no NVLink joins the GPUs: a step of a large video on " + std::to_string(gpus) + " of them takes about " +
         std::to_string(std::lround((slow / fast - 1) * 100)) + "% longer than with NVLink";
}

}  // namespace sparsereel::app
