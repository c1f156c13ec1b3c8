// Reads text files that people write: prompts, prompt sets, YAML. Does not use torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "models/files/regular_file.h"
#include "models/files/unicode.h"

namespace sparsereel::app {

constexpr uint64_t kMostSetBytes = 64 << 20;  // the largest prompt set

using models::checked_text;
using models::is_blank;
using models::kMostYamlBytes;
using models::read_text;

/// Returns true for "-", which stands for standard input.
bool is_standard_input(const std::filesystem::path& file);
/// Returns the name of the file for errors: "standard input" for "-".
std::string name_of_input(const std::filesystem::path& file);
/// Reads a file as read_text() does; "-" is standard input.
std::string read_input(const std::filesystem::path& file, uint64_t most);

}  // namespace sparsereel::app
