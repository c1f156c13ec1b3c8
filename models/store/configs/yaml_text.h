// Shared by all readers of YAML: loads a file's single document, and reports positions. No torch.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <string>

#include "hilbert/error.h"
#include "models/request/place.h"

namespace sparsereel::models {

/// Converts a position of yaml-cpp, which counts from 0, to one that counts from 1.
Mark mark_of(const YAML::Mark& mark);
/// Returns "my.yaml:3:8".
std::string place_in(const std::filesystem::path& file, const YAML::Mark& mark);
/// Returns an error about a position in the file.
Error bad_yaml(const std::filesystem::path& file, const YAML::Mark& mark, const std::string& problem,
               const std::string& remedy);

/// Parses the text's single document; null if it has nothing but comments. Throws Error naming file, line and column if
/// it is malformed, is not UTF-8, or contains a second document.
YAML::Node load_yaml(const std::string& text, const std::filesystem::path& file);

}  // namespace sparsereel::models
