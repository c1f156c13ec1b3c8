// Ranks that are threads of one process: for CPUs and tests, and on one GPU where all of them work in one stream.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "models/parallel/group.h"

namespace sparsereel::models {

/// Those of one group, each for a thread of its own. limit: how long a call waits for the others.
std::vector<std::shared_ptr<Group>> make_thread_groups(int64_t size,
                                                       std::chrono::milliseconds limit = std::chrono::minutes(10));

/// Runs body(group) in as many threads. What one throws aborts the group; the first of these is thrown here, when all
/// have ended.
void run_in_threads(int64_t size, const std::function<void(Group&)>& body,
                    std::chrono::milliseconds limit = std::chrono::minutes(10));

}  // namespace sparsereel::models
