// The GPUs that the CUDA runtime sees, and whether this build holds machine code for them. No torch, no CUDA header.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::attention::cuda {

struct Gpu {
  std::string name;
  int machine_code = 0;  // architecture of our machine code that would run, e.g. 90; 0: none, see problem
  /// The driver compiled it from the PTX in the build: a slower start, no features of the newer chip.
  bool compiled_from_ptx = false;
  std::string problem;  // empty, or why kernels of this build cannot run on it
};

/// Every visible GPU. Where there is none, an empty list, and `reason` (if given) says why (no driver, driver too old,
/// ...).
std::vector<Gpu> list_gpus(std::string* reason = nullptr);

/// 90 for compute capability 9.0; 0 where there is no such GPU.
int compute_capability(int device);

/// Empty where GPU `device` is there and this build holds machine code for it, else why not. The runtime's last error
/// stays what it was.
std::string unusable_reason(int device);

/// Whether a kernel has failed on the current GPU in such a way that every call fails since.
bool is_broken();

/// What CUDA says of the last error that nobody has asked for; null where there is none.
const char* pending_error();

/// Makes a GPU the current one of this thread, for as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  int before_ = -1;  // what it was; -1: nothing to change back
};

/// The least with e4m3: conversions to it and products of it.
constexpr int kE4m3Capability = 89;

/// Multiprocessors of the current GPU; 0 where there is none.
int multiprocessors();

}  // namespace sparsereel::attention::cuda
