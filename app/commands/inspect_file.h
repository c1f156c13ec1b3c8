// `sparsereel inspect FILE`: says what a file of weights holds.
#pragma once

#include <filesystem>

namespace sparsereel::app {

struct InspectOptions {
  bool json = false;     // print one JSON object
  bool tensors = false;  // list each tensor of a file; JSON always lists them
  double max_vram = 0;   // GiB of a GPU; 0 for the GPU of this machine, if there is one
};

/// Prints what a file of weights (or the index of its shards) holds, and which models can use it as a part. If this
/// program runs no model with such a part, prints that. Throws Error if the file is damaged.
void inspect_weights(const std::filesystem::path& path, const InspectOptions& options);

}  // namespace sparsereel::app
