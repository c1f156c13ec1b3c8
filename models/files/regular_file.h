// Files that are read whole: ordinary ones, of a bounded size. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace sparsereel::models {

/// All of an ordinary file of at most `most` bytes. Throws Error naming the file where it is missing, larger, or
/// nothing that ends: a pipe may be waited for and a device read for ever. `remedy`: what to do about such a file.
std::string read_regular_file(const std::filesystem::path& path, uint64_t most, const std::string& remedy);

constexpr uint64_t kMostYamlBytes = 4 << 20;  // its tree takes a hundred times as much

/// The same of a text.
std::string read_text(const std::filesystem::path& file, uint64_t most = kMostYamlBytes);

/// All that `descriptor` gives, whatever it is; `name` is how errors name it. Throws Error as read_regular_file() does.
std::string read_descriptor(int descriptor, const std::string& name, uint64_t most, const std::string& remedy);

/// "1 MiB", of a whole number of them.
std::string mebibytes(uint64_t bytes);

}  // namespace sparsereel::models
