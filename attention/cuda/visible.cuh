// The keys that a query may see, by the same rules as in attention/cpu/kernel_params.h.
#pragma once

#include "attention/cuda/kernel_params.h"
#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

/// Returns the number of keys of batch entry b that are not padding.
__device__ inline int key_count(const KernelParams& p, int b) {
  return p.key_lengths == nullptr ? p.keys : static_cast<int>(p.key_lengths[b]);
}

/// Returns how many queries of batch entry b are used to balance q and k; see attention/cpu/balance.h.
__device__ inline int balanced_queries(const KernelParams& p, int b) {
  return p.queries == p.keys ? key_count(p, b) : p.queries;
}

/// Returns the number of keys that a query sees: it sees the keys [0, visible_keys).
__device__ inline int visible_keys(const KernelParams& p, int count, int query) {
  return p.causal ? max(0, min(query + p.keys - p.queries + 1, count)) : count;
}

/// Counts of a list, in blocks of 64 x 64: the blocks that are computed, and the cost of the means.
struct Found {
  int kept, means;
};

/// Adds `number` to a counter of the call.
__device__ inline void count(const KernelParams& p, Count what, long long number) {
  if (p.counts != nullptr && number != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(p.counts + what), static_cast<unsigned long long>(number));
}

}  // namespace sparsereel::attention::cuda
