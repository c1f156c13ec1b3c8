// `sparsereel inspect FILE`: says what a file of weights is.
#pragma once

#include <filesystem>

namespace sparsereel::app {

struct InspectOptions {
  bool json = false;     // print one JSON object
  bool tensors = false;  // list each tensor of a file; JSON always does
};

/// Prints the models that a file of weights, or the index of its shards, is a part of. Prints a single line if no model
/// that this program runs has such a part. Throws Error if the file is damaged.
void inspect_weights(const std::filesystem::path& path, const InspectOptions& options);

}  // namespace sparsereel::app
