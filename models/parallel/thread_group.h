// Ranks as threads of one process: for CPUs and tests, and on one GPU if all of them work in one stream.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "models/parallel/group.h"

namespace sparsereel::models {

/// Returns a group for each rank, to be used in the rank's own thread. `limit` is how long a call waits for the other
/// ranks.
std::vector<std::shared_ptr<Group>> make_thread_groups(int64_t size,
                                                       std::chrono::milliseconds limit = std::chrono::minutes(10));

/// Runs body(group) in this many threads. An exception aborts the group. The first one is rethrown here after all
/// threads have ended.
void run_in_threads(int64_t size, const std::function<void(Group&)>& body,
                    std::chrono::milliseconds limit = std::chrono::minutes(10));

}  // namespace sparsereel::models
