// For calls that compute only some of the heads of an attention while other ranks compute the other heads. No torch.
#pragma once

#include <cstdint>
#include <functional>

namespace sparsereel::attention {

struct HeadPart {
  int64_t first = 0, all = 0;  // number of the call's first head of q among the heads of all ranks; number of all heads
  bool alike = true;           // true if all heads have the same policy, so that they share one budget per batch entry
  /// Sums `count` counters in place over the calls of all parts. The counters are in the memory of the call's device.
  /// On a GPU, the sum is enqueued in the call's stream. All parts call this equally often, one batch entry after the
  /// other.
  std::function<void(int64_t* counts, int64_t count)> sum{};

  /// Returns true if the call's heads share their budget with heads of other ranks.
  bool shares_budget() const { return alike && sum != nullptr; }
};

}  // namespace sparsereel::attention
