// SHA-256 of a file. No torch.
#pragma once

#include <filesystem>
#include <string>

namespace sparsereel::app {

/// 64 hexadecimal digits. Throws Error naming the file when it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace sparsereel::app
