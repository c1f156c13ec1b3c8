// Decoding of UTF-8.
#include "models/files/unicode.h"

#include <algorithm>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

/// White_Space in Unicode 17's PropList.txt.
bool is_white_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

/// Bytes of the character that a lead byte announces; what follows need not be there.
size_t announced_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The first character of well-formed, non-empty UTF-8.
char32_t first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = character_length(text);
  char32_t code = length == 1 ? lead : lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  return code;
}

}  // namespace

bool is_utf8(std::string_view text) {
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // of a sequence of so many bytes
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t length = announced_length(text[0]);
    if ((lead >= 0x80 && lead < 0xC0) || lead >= 0xF8 || length > text.size()) return false;
    for (size_t i = 1; i < length; ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return false;
    }
    const char32_t code = first_character(text);
    if (code < kLeast[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    text.remove_prefix(length);
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
  return std::min(announced_length(text[0]), text.size());
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
  return !text.empty() && is_white_space(first_character(text)) ? character_length(text) : 0;
}

bool is_blank(std::string_view text) {
  while (const size_t space = white_space_length(text)) text.remove_prefix(space);
  return text.empty();
}

std::u32string to_code_points(std::string_view text) {
  std::u32string codes;
  for (; !text.empty(); text.remove_prefix(character_length(text))) codes += first_character(text);
  return codes;
}

std::string to_utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t code : text) {
    const auto add = [&](char32_t lead, int shift) { bytes += static_cast<char>(lead | (code >> shift)); };
    const auto follow = [&](int shift) { bytes += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) {
      add(0, 0);
    } else if (code < 0x800) {
      add(0xC0, 6), follow(0);
    } else if (code < 0x10000) {
      add(0xE0, 12), follow(6), follow(0);
    } else {
      add(0xF0, 18), follow(12), follow(6), follow(0);
    }
  }
  return bytes;
}

}  // namespace sparsereel::models
