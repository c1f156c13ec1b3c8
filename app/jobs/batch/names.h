// File names of a set's videos, safe on every file system, whatever the prompt. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsereel::app::sets {

/// Returns the prompt's ASCII letters and digits in lower case, with a '-' in place of everything between them. The
/// result has at most 48 characters. It is empty if the prompt has no such letters or digits.
std::string slug(std::string_view prompt);

/// Returns "0007-a-red-circle.mp4". `row` counts from 0; `extension` includes its dot.
std::string video_name(int64_t row, std::string_view prompt, std::string_view extension);

/// Returns true if the name stays in its folder and is valid on every system: no separator, no control character, not
/// hidden.
bool is_plain_name(std::string_view name);

}  // namespace sparsereel::app::sets
