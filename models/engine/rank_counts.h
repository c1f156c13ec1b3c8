// Adds up the attention counts of a video's ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/call_policy.h"
#include "models/parallel/group.h"

namespace sparsereel::models {

/// Sums each layer's statistics over all ranks. Adds to kept_by_rank [ranks], empty at first, the blocks that each rank
/// kept. All ranks call this; `device` is the group's.
void add_up_ranks(std::vector<attention::Statistics>& layers, std::vector<int64_t>& kept_by_rank, Group& group,
                  at::Device device);

}  // namespace sparsereel::models
