// Of calls that have some of an attention's heads, while others are computed elsewhere at the same time. No torch.
#pragma once

#include <cstdint>
#include <functional>

namespace sparsereel::attention {

struct HeadPart {
  int64_t first = 0, all = 0;  // the call's heads of q are those from the first on of so many
  bool alike = true;           // whether all of these have one policy, and so one budget a batch entry
  /// Adds up, in place, what the calls of all parts count: so many numbers in the memory of the call's device. On a GPU
  /// it is enqueued in the stream that the call was enqueued in. All parts call it equally often, one batch entry after
  /// the other.
  std::function<void(int64_t* counts, int64_t count)> sum{};

  /// Whether the call's heads share their budget with other heads.
  bool shares_budget() const { return alike && sum != nullptr; }
};

}  // namespace sparsereel::attention
