// Which device each rank of this host computes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sparsereel::models {

/// Returns a device for each of so many ranks: cuda:0, cuda:1 and so on, or "cpu" for all of them where `device` is
/// cpu. `gpus`: how many this machine has. `may_share`: ranks then take turns on too few GPUs, as tests want it.
/// Throws Error (field gpus or device) where the number is impossible, there are fewer GPUs, or `device` is a single
/// GPU.
std::vector<std::string> devices_of_ranks(int64_t ranks, const std::string& device, int64_t gpus,
                                          bool may_share = false);

}  // namespace sparsereel::models
