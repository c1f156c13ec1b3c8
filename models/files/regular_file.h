// Reads whole ordinary files of a limited size. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace sparsereel::models {

/// Returns the content of an ordinary file of at most `most` bytes. Throws Error naming the file if it is missing,
/// larger, or not ordinary: a pipe may make us wait, and a device may never end. `remedy` is the Error's remedy.
std::string read_regular_file(const std::filesystem::path& path, uint64_t most, const std::string& remedy);

constexpr uint64_t kMostYamlBytes = 4 << 20;  // bytes; the tree of a YAML file takes a hundred times as much memory

/// Reads a text file as read_regular_file() does.
std::string read_text(const std::filesystem::path& file, uint64_t most = kMostYamlBytes);

/// Reads everything from `descriptor`, which may be a pipe or a device. `name` is its name in errors. Throws Error as
/// read_regular_file() does.
std::string read_descriptor(int descriptor, const std::string& name, uint64_t most, const std::string& remedy);

/// Formats a whole number of MiB: "1 MiB".
std::string mebibytes(uint64_t bytes);

}  // namespace sparsereel::models
