// Names of a set's videos: safe on every file system, whatever the prompt. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsereel::app::sets {

/// Lower-case ASCII letters and digits of the prompt, a '-' for everything between, at most 48 of them; empty where it
/// has none.
std::string slug(std::string_view prompt);

/// "0007-a-red-circle.mp4": row counts from 0, extension comes with its dot.
std::string video_name(int64_t row, std::string_view prompt, std::string_view extension);

/// A name that stays in its folder and is a file's on every system: no separator, no control character, not hidden.
bool is_plain_name(std::string_view name);

}  // namespace sparsereel::app::sets
