// Which keys a query may see; the same rules as attention/cpu/problem.h.
#pragma once

#include "attention/cuda/launch.h"
#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

/// Keys of batch entry b that are not padding.
__device__ inline int key_count(const Problem& p, int b) {
  return p.key_lengths == nullptr ? p.keys : static_cast<int>(p.key_lengths[b]);
}

/// Query i sees the keys [0, visible_keys).
__device__ inline int visible_keys(const Problem& p, int count, int query) {
  return p.causal ? max(0, min(query + p.keys - p.queries + 1, count)) : count;
}

}  // namespace sparsereel::attention::cuda
