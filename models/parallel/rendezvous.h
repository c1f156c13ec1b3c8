// Connects the processes of several hosts. Rank 0 listens at a known address, and tells each rank where the other ranks
// listen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/parallel/socket_group.h"

namespace sparsereel::models {

struct Rendezvous {
  std::string host;  // where rank 0 listens, or where the store is
  uint16_t port = 0;
  bool is_kept = false;      // a launcher keeps a libtorch store there, which says where rank 0 listens
  bool is_one_host = false;  // all ranks are on this host and accept no connections from other hosts
  std::string run = "0";     // name of this run, unique among simultaneous runs
  std::string secret = {};   // the job's secret, by which ranks recognize each other
};

/// Returns this host's name, by which ranks tell hosts apart.
std::string host_name();

/// Connects to all other ranks over TCP, for SocketGroup::connect(). If this takes longer than limits.start, throws
/// Error. The error names the meeting place if rank 0 is missing there, or else a rank that has not connected. Also
/// throws if a rank was started with another number of ranks.
std::vector<Link> meet(const Rendezvous& place, int64_t rank, int64_t size, const GroupLimits& limits);

}  // namespace sparsereel::models
