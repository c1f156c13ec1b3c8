// `sparsereel inspect`: what a checkpoint folder, a safetensors file or a video of ours holds.
#pragma once

#include <filesystem>

namespace sparsereel::app {

/// Prints to stdout; `json` prints one object. Throws Error when the path is none of these.
void inspect(const std::filesystem::path& path, bool json);

}  // namespace sparsereel::app
