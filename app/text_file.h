// Text files of people: prompts, prompt sets, YAML. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sparsereel::app {

/// The whole of a file or pipe. Throws Error naming it where it cannot be read.
std::string read_text(const std::filesystem::path& file);

/// The text without the byte order mark of some editors. Throws Error naming file and line where it is not UTF-8 or
/// holds a NUL, as UTF-16 does.
std::string_view checked_text(std::string_view text, const std::string& file);

}  // namespace sparsereel::app
