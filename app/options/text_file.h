// Text files of people: prompts, prompt sets, YAML. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "models/files/regular_file.h"
#include "models/files/unicode.h"

namespace sparsereel::app {

constexpr uint64_t kMostSetBytes = 64 << 20;

using models::checked_text;
using models::is_blank;
using models::kMostYamlBytes;
using models::read_text;

/// "-", where a prompt or a set of them is to be read.
bool is_standard_input(const std::filesystem::path& file);
/// How errors name the file: "standard input" for "-".
std::string name_of_input(const std::filesystem::path& file);
/// As read_text(); "-" is standard input.
std::string read_input(const std::filesystem::path& file, uint64_t most);

}  // namespace sparsereel::app
