// Where the processes of several hosts find each other: a store of libtorch's, in which each says where it listens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/parallel/socket_group.h"

namespace sparsereel::models {

struct Rendezvous {
  std::string host;  // of the store
  uint16_t port = 0;
  bool is_kept = false;   // by whoever started the ranks; false: rank 0 keeps it
  std::string run = "0";  // a name of this run, where a store outlives it
};

/// This host's, by which links tell one from another.
std::string host_name();

/// Links over TCP to all other ranks, for SocketGroup::connect(). Throws Error naming the store where nobody keeps it,
/// and a rank that has not come, within limits.start.
std::vector<Link> meet(const Rendezvous& place, int64_t rank, int64_t size, const GroupLimits& limits);

}  // namespace sparsereel::models
