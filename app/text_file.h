// Text files of people: prompts, prompt sets, YAML. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace sparsereel::app {

constexpr uint64_t kMostYamlBytes = 4 << 20;  // its tree takes a hundred times as much
constexpr uint64_t kMostSetBytes = 64 << 20;

/// The whole of an ordinary file. Throws Error naming it where it cannot be read or is larger.
std::string read_text(const std::filesystem::path& file, uint64_t most = kMostYamlBytes);

/// "-", where a prompt or a set of them is to be read.
bool is_standard_input(const std::filesystem::path& file);
/// How errors name the file: "standard input" for "-".
std::string name_of_input(const std::filesystem::path& file);
/// As read_text(); "-" is standard input.
std::string read_input(const std::filesystem::path& file, uint64_t most);

/// The text without the byte order mark of some editors. Throws Error naming file and line where it is not UTF-8 or
/// holds a NUL, as UTF-16 does.
std::string_view checked_text(std::string_view text, const std::string& file);

/// Whether it holds nothing but white space.
bool is_blank(std::string_view text);

}  // namespace sparsereel::app
