// Adds up the statistics of attention of all ranks that make a video.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/call_policy.h"
#include "models/parallel/group.h"

namespace sparsereel::models {

/// Sums each layer's statistics over all ranks. Adds the number of blocks that each rank computed to the rank's element
/// of kept_by_rank, which is empty before the first call. All ranks call this function. `device` is the device of the
/// group's tensors.
void add_up_ranks(std::vector<attention::Statistics>& layers, std::vector<int64_t>& kept_by_rank, Group& group,
                  at::Device device);

}  // namespace sparsereel::models
