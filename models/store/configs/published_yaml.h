// Reads where a model's files are published: the key `published` of its YAML. No torch.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <vector>

#include "models/store/configs/published.h"

namespace sparsereel::models {

/// Parses the value of `published`. Throws Error naming file, line and key if it is malformed.
std::vector<Published> parse_published(const YAML::Node& node, const std::filesystem::path& file);

}  // namespace sparsereel::models
