// The little Unicode that tokenising and its warnings need: UTF-8 and white space.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// True when `text` is well-formed UTF-8 (no overlong forms, no surrogates, nothing beyond U+10FFFF).
bool is_utf8(std::string_view text);
/// The text without the byte order mark of some editors. Throws Error naming file and line where it is not UTF-8 or
/// holds a NUL, as UTF-16 does.
std::string_view checked_text(std::string_view text, const std::string& file);
/// Bytes of the first character of well-formed, non-empty UTF-8; never more than `text` has.
size_t character_length(std::string_view text);
/// The longest beginning of well-formed UTF-8 that has at most so many bytes and ends with a whole character.
std::string_view whole_characters(std::string_view text, size_t most_bytes);
/// Bytes of the first white space character (property White_Space), or 0 when `text` starts with something else.
size_t white_space_length(std::string_view text);
/// Whether it holds nothing but white space.
bool is_blank(std::string_view text);
/// `text` is well-formed UTF-8.
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);

}  // namespace sparsereel::models
