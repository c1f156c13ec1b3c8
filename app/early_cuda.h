// Starts the GPU's driver before the program needs it.
#pragma once

namespace sparsereel::app {

/// If the command computes on a GPU, starts the driver and the GPU that the arguments name, in a separate thread while
/// the libraries load. Starting the driver and starting the GPU take about a quarter of a second each. Ignores
/// failures: the code that needs the GPU reports them. Uses only the C library, because no other library is ready yet.
void start_cuda_early(char** arguments, char** environment);

}  // namespace sparsereel::app
