// How the ranks of the command line share a model: rank 0 tells which one, and the others open it and follow.
#pragma once

#include <exception>

#include "app/options/options.h"
#include "app/ranks/world.h"

namespace sparsereel::app {

/// Called by rank 0: the others open the model and begin to load it, while texts are encoded here, and all make the
/// group. `threads`: CPU threads of each rank on a CPU.
void tell_model(World& world, const GenerateOptions& options, int threads);

/// Makes what rank 0 tells, as another rank, until that says that it was all. Returns the exit code. `failure`: what
/// has kept this rank from that, for rank 0 to hear.
int follow(World& world, std::exception_ptr failure = nullptr);

}  // namespace sparsereel::app
