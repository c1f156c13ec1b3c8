// Assigns a device to each rank of this host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sparsereel::models {

/// Returns a device for each rank: cuda:0, cuda:1 and so on, or "cpu" for all if `device` is cpu. `gpus` is the number
/// of GPUs of this machine. With `may_share`, which is for tests, several ranks may use one GPU. Throws Error (field
/// gpus or device) if the number of ranks is impossible or exceeds the number of GPUs, or if `device` is a single GPU.
std::vector<std::string> devices_of_ranks(int64_t ranks, const std::string& device, int64_t gpus,
                                          bool may_share = false);

}  // namespace sparsereel::models
