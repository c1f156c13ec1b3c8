// Loads a YAML file's only document, and makes errors with positions, for all readers of YAML. No torch.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <string>

#include "hilbert/error.h"
#include "models/request/place.h"

namespace sparsereel::models {

/// Converts yaml-cpp's position, which counts lines and columns from 0, to ours, which counts from 1.
Mark mark_of(const YAML::Mark& mark);
/// Returns file, line and column: "my.yaml:3:8".
std::string place_in(const std::filesystem::path& file, const YAML::Mark& mark);
/// Returns the Error for a problem at a position in the file.
Error bad_yaml(const std::filesystem::path& file, const YAML::Mark& mark, const std::string& problem,
               const std::string& remedy);

/// Parses the text's only document. The node is null if the text has only comments. Throws Error naming file, line and
/// column if it is malformed, is not UTF-8, or contains a second document.
YAML::Node load_yaml(const std::string& text, const std::filesystem::path& file);

}  // namespace sparsereel::models
