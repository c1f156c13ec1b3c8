// Shares a model among the ranks of a command: rank 0 names the model; the other ranks open it and follow rank 0.
#pragma once

#include <exception>

#include "app/options/options.h"
#include "app/ranks/world.h"

namespace sparsereel::app {

/// Rank 0 calls this to name the model. The other ranks open the model and begin to load it while rank 0 encodes texts,
/// and all ranks make the group. `threads` is the number of CPU threads of each rank on a CPU.
void send_model(World& world, const GenerateOptions& options, int threads);

/// The other ranks call this. Follows rank 0 until rank 0 finishes, and returns the exit code. `failure` is an earlier
/// error of this rank, to report to rank 0.
int follow(World& world, std::exception_ptr failure = nullptr);

}  // namespace sparsereel::app
