// What the ranks of a video count in its attention, put together.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/call_policy.h"
#include "models/parallel/group.h"

namespace sparsereel::models {

/// Each layer's statistics become the sums over all ranks; kept_by_rank [ranks], empty at first, grows by the blocks
/// that each of them kept. Called by all; device: the group's.
void add_up_ranks(std::vector<attention::Statistics>& layers, std::vector<int64_t>& kept_by_rank, Group& group,
                  at::Device device);

}  // namespace sparsereel::models
