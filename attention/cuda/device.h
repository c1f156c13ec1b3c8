// The GPUs that the CUDA runtime sees, and whether this build has machine code for them. No torch, no CUDA header.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::attention::cuda {

struct Gpu {
  std::string name;
  int machine_code = 0;  // architecture of this build's code that the GPU would run, such as 90; 0 if there is none
  /// True if the driver compiles the code from the build's PTX. The program then starts more slowly and does not use
  /// the features of newer GPUs.
  bool compiled_from_ptx = false;
  std::string problem;  // why kernels of this build cannot run on this GPU; empty if they can
};

/// Returns every visible GPU. If there is none, returns an empty list and writes the cause (no driver, driver too old,
/// ...) to `reason` unless it is null.
std::vector<Gpu> list_gpus(std::string* reason = nullptr);

/// Returns the compute capability of a GPU times 10 (90 for 9.0); 0 if there is no such GPU.
int compute_capability(int device);

/// Returns an empty text if GPU `device` exists and this build has machine code for it, otherwise the reason why it
/// cannot be used. Does not change the runtime's last error.
std::string unusable_reason(int device);

/// Returns true if a kernel failed on the current GPU in such a way that every later call fails.
bool is_broken();

/// Returns CUDA's message for the last error, if no call has cleared it since; otherwise null.
const char* pending_error();

/// Makes a GPU the current GPU of this thread until the object is destroyed.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  int before_ = -1;  // the device that was current before; -1 if there is nothing to restore
};

/// Smallest compute capability (89 for 8.9) that converts to e4m3 and multiplies matrices of e4m3.
constexpr int kE4m3Capability = 89;

/// Returns the number of multiprocessors of the current GPU; 0 if there is none.
int multiprocessors();

}  // namespace sparsereel::attention::cuda
