// Lets many tiles share a budget of key blocks. A histogram counts the candidates of all tiles by the logarithm of
// their error. The bin in which the budget ends is divided into finer bins in the same way. A tile then keeps its
// candidates above the finer bin in which the budget ends, and some of those in it. Counts are integers, so the order
// of additions does not matter.
#pragma once

#include "attention/cuda/scratch.h"
#include "attention/cuda/select/selection_cut.cuh"

namespace sparsereel::attention::cuda {

constexpr int kBudgetThreads = 512;
static_assert(kBins == 4 * kBudgetThreads);

/// Counts of candidates per bin in shared memory. They are added to global memory at the end.
struct BinCounts {
  uint32_t count[kBins];

  /// Sets all counts to 0. All threads of the CTA call it together.
  __device__ void clear() {
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kBudgetThreads) count[bin] = 0;
    __syncthreads();
  }
  /// Counts one candidate for each lane whose `counts` is true. All lanes of a warp call it together. Often these lanes
  /// have the same bin, and then a single addition counts them.
  __device__ void add(uint32_t bin, bool counts) {
    const unsigned lanes = __ballot_sync(~0U, counts);
    if (!counts) return;
    int alike = 0;
    __match_all_sync(lanes, bin, &alike);
    if (alike == 0) {
      atomicAdd(&count[bin], 1);
    } else if (static_cast<int>(threadIdx.x) % 32 == __ffs(lanes) - 1) {
      atomicAdd(&count[bin], __popc(lanes));
    }
  }
  __device__ void add_to(uint32_t* all) {
    __syncthreads();
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kBudgetThreads)
      if (count[bin] != 0) atomicAdd(all + bin, count[bin]);
  }
};

/// Finds the bin that holds the `wanted`-th candidate, counted from the highest bin down. Returns this bin, and how
/// many of its candidates are wanted (kWholeBin for all). If there are fewer than `wanted` candidates, returns the
/// lowest bin and kWholeBin. If `wanted` is 0, returns the highest bin and 0. All threads of the CTA call it together.
__device__ inline BinPlace find_bin(const uint32_t* counts, uint32_t wanted) {
  __shared__ uint32_t totals[kBudgetThreads / 32];
  __shared__ BinPlace place;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, highest = kBins - 1 - 4 * thread;
  if (thread == 0) place = wanted > 0 ? BinPlace{0, kWholeBin} : BinPlace{kBins - 1, 0};
  uint32_t mine[4], sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    mine[i] = counts[highest - i];
    sum += mine[i];
  }
  uint32_t up_to = sum;
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const uint32_t before = __shfl_up_sync(~0U, up_to, lanes);
    if (lane >= lanes) up_to += before;
  }
  if (lane == 31) totals[thread / 32] = up_to;
  __syncthreads();
  for (int warp = 0; warp < thread / 32; ++warp) up_to += totals[warp];
  uint32_t above = up_to - sum;
  if (above < wanted && wanted <= up_to) {
    int i = 0;
    while (above + mine[i] < wanted) above += mine[i++];
    const uint32_t rest = wanted - above;
    place = {highest - i, rest == mine[i] ? kWholeBin : rest};
  }
  __syncthreads();
  const BinPlace found = place;
  __syncthreads();
  return found;
}

/// Returns how many ties tile `index` keeps. Ties are candidates in the finer bin in which the budget ends; all `tiles`
/// tiles together keep `rest` of them.
__device__ inline int ties_of(uint32_t rest, int64_t index, int64_t tiles) {
  return static_cast<int>((index + 1) * rest / tiles - index * rest / tiles);
}

}  // namespace sparsereel::attention::cuda
