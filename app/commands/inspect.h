// `sparsereel inspect`: what a checkpoint folder, a file of weights, a model's YAML or a video of ours holds.
#pragma once

#include <filesystem>

#include "app/commands/inspect_file.h"

namespace sparsereel::app {

/// Prints to stdout. Throws Error when the path is none of these.
void inspect(const std::filesystem::path& path, const InspectOptions& options);

}  // namespace sparsereel::app
