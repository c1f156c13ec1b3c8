// Describes a call that computes only some of the heads of an attention, while other ranks compute the other heads. No
// torch.
#pragma once

#include <cstdint>
#include <functional>

namespace sparsereel::attention {

struct HeadPart {
  /// first: index of the call's first head of q among the heads of all ranks. all: number of heads of q of all ranks.
  int64_t first = 0, all = 0;
  bool alike = true;  // true if all heads have the same policy, so that they share one budget per batch entry
  /// Replaces each of the `count` counters by its sum over the calls of all ranks. The counters are in the memory of
  /// the call's device; on a GPU, the sum is enqueued in the call's stream. All ranks must call this equally often and
  /// take the batch entries in order, because the first call of one rank is summed with the first call of the others,
  /// and so on.
  std::function<void(int64_t* counts, int64_t count)> sum{};

  /// Returns true if the call's heads share their budget with heads of other ranks.
  bool shares_budget() const { return alike && sum != nullptr; }
};

}  // namespace sparsereel::attention
