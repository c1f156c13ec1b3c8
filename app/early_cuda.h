// The GPU's driver, started before the program needs it.
#pragma once

namespace sparsereel::app {

/// Starts the driver, and the GPU that the arguments name, in a thread of its own where the command computes on one:
/// that takes a quarter of a second, most of it in the system, and the libraries take as long to start. Whatever fails
/// is left to whoever needs it. Uses the C library alone, for it is called before any other is ready.
void start_cuda_early(char** arguments, char** environment);

}  // namespace sparsereel::app
