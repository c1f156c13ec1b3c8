// What our readers of YAML share: one document a file, and where in it something stands. No torch.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <string>

#include "hilbert/error.h"
#include "models/request/place.h"

namespace sparsereel::models {

Mark mark_of(const YAML::Mark& mark);
/// "my.yaml:3:8"
std::string place_in(const std::filesystem::path& file, const YAML::Mark& mark);
/// An error about the file, at a place in it.
Error bad_yaml(const std::filesystem::path& file, const YAML::Mark& mark, const std::string& problem,
               const std::string& remedy);

/// The text's one document; null where it is nothing but comments. Throws Error naming file, line and column where it
/// is not well-formed or not UTF-8, or where a second document begins.
YAML::Node load_yaml(const std::string& text, const std::filesystem::path& file);

}  // namespace sparsereel::models
