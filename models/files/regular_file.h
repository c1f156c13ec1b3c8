// Reads whole ordinary files of a limited size. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace sparsereel::models {

/// Returns the content of an ordinary file of at most `most` bytes. Throws Error naming the file if it is missing,
/// larger, or not an ordinary file: a pipe could make us wait, and a device may never end. `remedy` becomes the Error's
/// remedy.
std::string read_regular_file(const std::filesystem::path& path, uint64_t most, const std::string& remedy);

/// Largest size of a YAML file in bytes. It is low because a parsed file takes a hundred times as much memory.
constexpr uint64_t kMostYamlBytes = 4 << 20;

/// Reads a text file as read_regular_file() does.
std::string read_text(const std::filesystem::path& file, uint64_t most = kMostYamlBytes);

/// Reads from `descriptor` to its end; it may be a pipe or a device. Throws Error naming `name` if there are more than
/// `most` bytes, or if reading fails.
std::string read_descriptor(int descriptor, const std::string& name, uint64_t most, const std::string& remedy);

/// Formats bytes in MiB, rounded down: "1 MiB".
std::string mebibytes(uint64_t bytes);

}  // namespace sparsereel::models
