// The Unicode that prompts and tokenizers need: UTF-8, white space, normal forms and small letters.
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
/// Normal form C (Unicode Standard Annex 15). It joins accents to the letter before them: "e" and a combining acute
/// become "\u00e9".
std::u32string normal_form_c(std::u32string_view text);
/// Normal form KC of one code point: ligatures become letters, fullwidth forms those of usual width.
std::u32string normal_form_kc(char32_t code);
/// The code point's simple lower-case mapping, or the code point itself.
char32_t small_letter(char32_t code);

}  // namespace sparsereel::models
