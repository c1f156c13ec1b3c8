// Sockets between ranks, and limits on waiting. No tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// The two stream sockets to another rank: `data` for calls, and `control` for bad news, which a process reads even
/// while it computes. They are -1 if there is none, as for the rank itself.
struct Link {
  int data = -1, control = -1;
};

/// The times that a rank waits at the start and within a call before it gives up for all. `vanished` is the time for
/// which another host may leave data unacknowledged.
struct GroupLimits {
  std::chrono::milliseconds start{60'000}, call{600'000}, vanished{10'000};
};

/// Returns links[rank][other] for `size` processes of one machine. Each process uses its own row, and must close the
/// others.
std::vector<std::vector<Link>> local_links(int64_t size);
void close_links(const std::vector<Link>& links);

}  // namespace sparsereel::models
