// Sockets between the ranks, and how long a rank waits for another one. No tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// The two stream sockets that lead to another rank: for what calls send, and for bad news, which a process hears while
/// it computes. -1: none, as to the rank itself.
struct Link {
  int data = -1, control = -1;
};

/// How long a rank waits for another one before it gives up, for all: at the start, and within a call. `vanished`: how
/// long another host may leave the smallest message unconfirmed.
struct GroupLimits {
  std::chrono::milliseconds start{60'000}, call{600'000}, vanished{10'000};
};

/// links[rank][other] of `size` processes of one machine, which inherit a row each; close what is not one's own.
std::vector<std::vector<Link>> local_links(int64_t size);
void close_links(const std::vector<Link>& links);

}  // namespace sparsereel::models
