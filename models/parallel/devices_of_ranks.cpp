// Chooses a device for each rank, and refuses a number of ranks that this machine or sparsereel does not support.
#include "models/parallel/devices_of_ranks.h"

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMostRanks = 64;

}  // namespace

std::vector<std::string> devices_of_ranks(int64_t ranks, const std::string& device, int64_t gpus, bool may_share) {
  const std::string text = std::to_string(ranks);
  if (ranks < 1 || ranks > kMostRanks)
    throw bad_option("gpus", text + " is not a number of GPUs from 1 to " + std::to_string(kMostRanks),
                     "give the number of GPUs of this machine");
  if (device == "cpu") return std::vector<std::string>(static_cast<size_t>(ranks), device);
  if (device != "auto" && device != "cuda")
    throw bad_option("device", device + " is one GPU, but gpus is " + text,
                     "leave it out, and choose GPUs with CUDA_VISIBLE_DEVICES");
  if (gpus == 0 || (ranks > gpus && !may_share))
    throw bad_option("gpus", text + " exceeds the number of GPUs of this machine, " + std::to_string(gpus),
                     gpus == 0 ? "leave it out; 'sparsereel doctor' says what a GPU run needs"
                               : "use fewer; on several machines, start the command with torchrun or srun");
  std::vector<std::string> devices;
  for (int64_t rank = 0; rank < ranks; ++rank) devices.push_back("cuda:" + std::to_string(rank % gpus));
  return devices;
}

}  // namespace sparsereel::models
