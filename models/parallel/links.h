// Sockets between ranks, and limits on waiting. No tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// The two stream sockets to another rank: `data` for calls, and `control` for reports of failures. A process reads
/// `control` even while it computes. Both are -1 if there is no connection, for example from a rank to itself.
struct Link {
  int data = -1, control = -1;
};

/// The times that a rank waits at the start, and within a call, before it gives up and ends the group. `vanished` is
/// how long another host may leave data unacknowledged before its connections count as broken.
struct GroupLimits {
  std::chrono::milliseconds start{60'000}, call{600'000}, vanished{10'000};
};

/// Returns links[rank][other] for `size` processes of one machine. Each process uses its own row, and must close the
/// other rows.
std::vector<std::vector<Link>> local_links(int64_t size);
void close_links(const std::vector<Link>& links);

}  // namespace sparsereel::models
