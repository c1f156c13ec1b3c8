// UTF-8, normal forms and properties of characters, using utf8proc.
#include "models/files/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

const utf8proc_uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

struct Character {
  char32_t code;
  int64_t bytes;  // negative if the text does not begin with well-formed UTF-8
};

/// Returns the first character of a nonempty text.
Character first_character(std::string_view text) {
  utf8proc_int32_t code = 0;
  const utf8proc_ssize_t bytes = utf8proc_iterate(bytes_of(text), std::ssize(text), &code);
  return {static_cast<char32_t>(code), bytes};
}

bool is_white_space(char32_t code) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return (code >= 0x9 && code <= 0xD) || code == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

std::u32string composed(std::u32string_view text, int more_options = 0) {
  const std::string given = to_utf8(text);
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(bytes_of(given), std::ssize(given), &result,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | more_options));
  if (size < 0) throw std::bad_alloc();  // the only possible failure for well-formed text
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, std::free);
  return to_code_points({reinterpret_cast<const char*>(result), static_cast<size_t>(size)});
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const int64_t bytes = first_character(text).bytes;
    if (bytes < 0) return false;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return true;
}

std::string_view checked_text(std::string_view text, const std::string& file) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (!is_utf8(line) || line.find('\0') != std::string_view::npos)
      throw bad_input(file + ":" + std::to_string(number) + ": this is not UTF-8 text", "save the file as UTF-8");
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return text;
}

size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  return std::min<size_t>(lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4, text.size());
}

std::string_view whole_characters(std::string_view text, size_t most_bytes) {
  size_t length = 0;
  while (length < text.size()) {
    const size_t next = length + character_length(text.substr(length));
    if (next > most_bytes) break;
    length = next;
  }
  return text.substr(0, length);
}

size_t white_space_length(std::string_view text) {
  return !text.empty() && is_white_space(first_character(text).code) ? character_length(text) : 0;
}

CharacterKind kind_of(char32_t code) {
  if (is_white_space(code)) return CharacterKind::white_space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterKind::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterKind::number;
    default:
      return CharacterKind::other;
  }
}

bool is_blank(std::string_view text) {
  while (const size_t space = white_space_length(text)) text.remove_prefix(space);
  return text.empty();
}

std::u32string to_code_points(std::string_view text) {
  std::u32string codes;
  for (; !text.empty(); text.remove_prefix(character_length(text))) codes += first_character(text).code;
  return codes;
}

std::string to_utf8(std::u32string_view text) {
  std::string result;
  for (const char32_t code : text) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
    result.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  return result;
}

std::u32string normal_form_c(std::u32string_view text) {
  // utf8proc 2.8 loses this code point after a Hangul syllable. It joins with no other character, so the parts of the
  // text before and after it are composed separately.
  constexpr char32_t kLostVowel = 0x11A7;
  std::u32string result;
  for (size_t at = text.find(kLostVowel); at != std::u32string_view::npos; at = text.find(kLostVowel)) {
    result += composed(text.substr(0, at)) + kLostVowel;
    text.remove_prefix(at + 1);
  }
  return result + composed(text);
}

std::u32string normal_form_kc(char32_t code) {
  return composed({&code, 1}, UTF8PROC_COMPAT);
}

char32_t small_letter(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace sparsereel::models
