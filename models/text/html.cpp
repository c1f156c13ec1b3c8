// Finds character references and looks them up.
#include "models/text/html.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <vector>

namespace sparsereel::models {
namespace {

struct Entity {
  std::string_view name;  // with its semicolon; old names also occur without one
  char32_t first, second;
};

#include "models/text/html_entities.inc"  // NOLINT(bugprone-suspicious-include): the table

constexpr char32_t kReplacement = 0xFFFD;

const Entity* find_entity(std::string_view name) {
  const auto found = std::lower_bound(std::begin(kEntities), std::end(kEntities), name,
                                      [](const Entity& row, std::string_view wanted) { return row.name < wanted; });
  return found != std::end(kEntities) && found->name == name ? found : nullptr;
}

std::u32string text_of(const Entity& entity) {
  std::u32string text(1, entity.first);
  if (entity.second != 0) text += entity.second;
  return text;
}

/// Returns true for code points that a reference may name but no text may contain. They are dropped.
bool is_invalid(char32_t code) {
  return (code >= 0x1 && code <= 0x8) || (code >= 0xB && code <= 0x1F && code != 0xC && code != 0xD) ||
         (code >= 0x7F && code <= 0x9F) || (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFE) == 0xFFFE;
}

std::u32string text_of(char32_t code) {
  if (code >= 0x80 && code <= 0x9F) return {windows_1252(code)};
  if (code == 0 || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) return {kReplacement};
  return is_invalid(code) ? std::u32string() : std::u32string(1, code);
}

int digit_of(char32_t code, int base) {
  if (code >= '0' && code <= '9') return static_cast<int>(code - '0');
  const char32_t lower = code | 0x20;
  return base == 16 && lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a') + 10 : -1;
}

struct Reference {
  std::u32string text;
  size_t length = 0;   // in characters, including the '&'
  bool whole = false;  // true if it ends in a semicolon
};

/// Parses a text that begins with "&#".
std::optional<Reference> numeric_reference(std::u32string_view text) {
  const bool hex = text.size() > 2 && (text[2] | 0x20) == 'x';
  const int base = hex ? 16 : 10;
  const size_t start = hex ? 3 : 2;
  size_t at = start;
  char32_t code = 0;
  for (; at < text.size() && digit_of(text[at], base) >= 0; ++at) {
    code = std::min<char32_t>(code * static_cast<char32_t>(base) + static_cast<char32_t>(digit_of(text[at], base)),
                              0x110000);  // beyond Unicode; stops there, so that more digits cannot overflow
  }
  if (at == start) return std::nullopt;
  const bool whole = at < text.size() && text[at] == ';';
  return Reference{text_of(code), at + (whole ? 1 : 0), whole};
}

/// Parses a text that begins with '&'. Takes the longest name that follows.
std::optional<Reference> named_reference(std::u32string_view text) {
  constexpr size_t kLongest = 32;
  std::string name;
  size_t at = 1;
  while (at < text.size() && at <= kLongest && text[at] < 0x80 &&
         std::u32string_view(U"\t\n\f <&#;").find(text[at]) == std::u32string_view::npos)
    name += static_cast<char>(text[at++]);
  if (at < text.size() && text[at] == ';') {
    if (const Entity* entity = find_entity(name + ";")) return Reference{text_of(*entity), at + 1, true};
  }
  for (; name.size() > 1; name.pop_back())
    if (const Entity* entity = find_entity(name)) return Reference{text_of(*entity), name.size() + 1, false};
  return std::nullopt;
}

/// Parses a text that begins with '&'.
std::optional<Reference> reference_in(std::u32string_view text) {
  return text.size() > 1 && text[1] == '#' ? numeric_reference(text) : named_reference(text);
}

std::u32string unescape(std::u32string_view text, bool whole_only) {
  std::u32string result;
  while (!text.empty()) {
    std::optional<Reference> reference;
    if (text[0] == '&') reference = reference_in(text);
    if (reference && (reference->whole || !whole_only)) {
      result += reference->text;
      text.remove_prefix(reference->length);
    } else {
      result += text[0];
      text.remove_prefix(1);
    }
  }
  return result;
}

}  // namespace

char32_t windows_1252(char32_t control) {
  static constexpr std::array<char32_t, 32> kTable = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                                      0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                                      0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                                      0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  return kTable[control - 0x80];
}

std::u32string unescape_html(std::u32string_view text) {
  return unescape(text, false);
}

std::u32string unescape_whole_references(std::u32string_view text) {
  return unescape(text, true);
}

std::u32string unescape_nested_references(std::u32string_view text,
                                          const std::function<std::u32string(std::u32string)>& usual) {
  std::u32string read, unread(text.rbegin(), text.rend());  // reversed, so that new text can be put in front
  std::vector<size_t> begun;  // positions of each '&' in `read` that may still become a reference
  while (!unread.empty()) {
    const char32_t code = unread.back();
    unread.pop_back();
    if (code == '&') begun.push_back(read.size());
    read += code;
    if (code != ';' || begun.empty()) continue;
    const size_t start = begun.back();
    const auto reference = reference_in(std::u32string_view(read).substr(start));
    if (reference && reference->whole && start + reference->length == read.size()) {
      begun.pop_back();
      read.resize(start);
      const std::u32string there = usual(reference->text);
      unread.append(there.rbegin(), there.rend());
    } else {
      begun.clear();  // a reference contains no other '&' or ';'
    }
  }
  return read;
}

}  // namespace sparsereel::models
