// Unicode functions for prompts and tokenizers: UTF-8, kinds of characters, normalization forms and lower case.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Returns true if `text` is well-formed UTF-8 (no overlong forms, no surrogates, nothing beyond U+10FFFF).
bool is_utf8(std::string_view text);
/// Returns the text without the byte order mark that some editors write. Throws Error naming file and line if the text
/// is not UTF-8 or contains NUL, as UTF-16 does.
std::string_view checked_text(std::string_view text, const std::string& file);
/// Returns the number of bytes of the first character of well-formed, nonempty UTF-8; never more than text.size().
size_t character_length(std::string_view text);
/// Returns the longest prefix of well-formed UTF-8 that has at most `most_bytes` bytes and ends with a whole character.
std::string_view whole_characters(std::string_view text, size_t most_bytes);
/// Returns the number of bytes of the first character if it is white space (property White_Space), or else 0.
size_t white_space_length(std::string_view text);
/// The kinds of characters that tokenizers tell apart: categories L and N of Unicode, and the property White_Space.
enum class CharacterKind { letter, number, white_space, other };
CharacterKind kind_of(char32_t code);
/// Returns true if the text is empty or has only white space.
bool is_blank(std::string_view text);
/// Returns the code points of `text`, which must be well-formed UTF-8.
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);
/// Returns normalization form C (Unicode Standard Annex 15). It joins accents to the letter before them: "e" and a
/// combining acute become "\u00e9".
std::u32string normal_form_c(std::u32string_view text);
/// Returns normalization form KC of one code point: ligatures become letters, fullwidth forms get the usual width.
std::u32string normal_form_kc(char32_t code);
/// Returns the code point's simple lower-case mapping, or the code point itself.
char32_t small_letter(char32_t code);

}  // namespace sparsereel::models
