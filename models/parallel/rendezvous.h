// Where the processes of several hosts find each other: rank 0 listens at a known place, and tells each rank where the
// others listen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/parallel/socket_group.h"

namespace sparsereel::models {

struct Rendezvous {
  std::string host;  // where rank 0 listens, or the store is
  uint16_t port = 0;
  bool is_kept = false;      // a launcher keeps a store of libtorch's there, which says where rank 0 listens
  bool is_one_host = false;  // all ranks are on this host: they listen for nobody else
  std::string run = "0";     // a name of this run, which others at the same time do not have
  std::string secret = {};   // of the job: who does not know it is no rank
};

/// This host's, by which links tell one from another.
std::string host_name();

/// Links over TCP to all other ranks, for SocketGroup::connect(). Throws Error within limits.start: it names the
/// meeting place where nobody answers as rank 0, a rank that has not come, and a rank that counts another number of
/// ranks.
std::vector<Link> meet(const Rendezvous& place, int64_t rank, int64_t size, const GroupLimits& limits);

}  // namespace sparsereel::models
