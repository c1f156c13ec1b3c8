// For calls that compute only some of the heads of an attention while other ranks compute the other heads. No torch.
#pragma once

#include <cstdint>
#include <functional>

namespace sparsereel::attention {

struct HeadPart {
  int64_t first = 0, all = 0;  // the call's heads of q are those from `first` on, of `all`
  bool alike = true;           // true if all these heads have one policy and so share one budget per batch entry
  /// Sums `count` counters in place over the calls of all parts. The counters are in the memory of the call's device.
  /// On a GPU, the sum is enqueued in the call's stream. All parts call this equally often, one batch entry after the
  /// other.
  std::function<void(int64_t* counts, int64_t count)> sum{};

  /// Returns true if the call's heads share their budget with other heads.
  bool shares_budget() const { return alike && sum != nullptr; }
};

}  // namespace sparsereel::attention
