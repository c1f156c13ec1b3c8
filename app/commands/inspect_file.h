// `sparsereel inspect FILE`: what a file of weights is.
#pragma once

#include <filesystem>

namespace sparsereel::app {

struct InspectOptions {
  bool json = false;     // one object
  bool tensors = false;  // list each tensor of a file; JSON always does
};

/// Prints which models a file of weights, or the index of its shards, is a part of: a line alone where it is of none
/// that this program runs. Throws Error where the file is damaged.
void inspect_weights(const std::filesystem::path& path, const InspectOptions& options);

}  // namespace sparsereel::app
