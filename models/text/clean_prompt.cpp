// Applies ftfy's steps in their order, repeatedly until none changes anything.
#include "models/text/clean_prompt.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "models/files/unicode.h"
#include "models/text/html.h"

namespace sparsereel::models {
namespace {

/// Returns true for ligatures and for forms of unusual width.
bool has_other_form(char32_t code) {
  return code == 0x132 || code == 0x133 || code == 0x149 || (code >= 0x1C4 && code <= 0x1CC) ||
         (code >= 0x1F1 && code <= 0x1F3) || code == 0x3000 || (code >= 0xFB00 && code <= 0xFB06) ||
         (code >= 0xFF01 && code <= 0xFFEF);
}

std::u32string in_usual_forms(const std::u32string& text) {
  constexpr char32_t kLongSAndT = 0xFB05;  // this ligature's long s stays, as in ftfy
  std::u32string result;
  for (const char32_t code : text) {
    if (code == kLongSAndT)
      result += U"\u017Ft";
    else
      result += has_other_form(code) ? normal_form_kc(code) : std::u32string(1, code);
  }
  return result;
}

char32_t straightened(char32_t code) {
  if (code == 0x2BC || (code >= 0x2018 && code <= 0x201B)) return '\'';
  return code >= 0x201C && code <= 0x201F ? char32_t{'"'} : code;
}

std::u32string with_line_feeds(const std::u32string& text) {
  std::u32string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    const bool breaks = text[i] == '\r' || text[i] == 0x85 || text[i] == 0x2028 || text[i] == 0x2029;
    result += breaks ? char32_t{'\n'} : text[i];
  }
  return result;
}

/// Returns the length of an escape sequence that colors text in a terminal, "\x1b[36;44m", or 0.
size_t terminal_escape_length(std::u32string_view text) {
  if (text.size() < 3 || text[0] != 0x1B || text[1] != '[') return 0;
  size_t at = 2;
  while (at < text.size() && ((text[at] >= '0' && text[at] <= '9') || text[at] == ';')) ++at;
  const char32_t last = at < text.size() ? text[at] | 0x20 : 0;
  return last >= 'a' && last <= 'z' ? at + 1 : 0;
}

std::u32string without_terminal_escapes(std::u32string_view text) {
  std::u32string result;
  while (!text.empty()) {
    const size_t length = terminal_escape_length(text);
    if (length == 0) result += text[0];
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

bool is_unwanted_control(char32_t code) {
  return code <= 0x8 || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
         (code >= 0x206A && code <= 0x206F) || code == 0xFEFF || (code >= 0xFFF9 && code <= 0xFFFC);
}

/// Applies the steps that treat each character alone.
std::u32string with_usual_characters(std::u32string text) {
  for (char32_t& code : text)
    if (code >= 0x80 && code <= 0x9F) code = windows_1252(code);
  text = in_usual_forms(text);
  std::transform(text.begin(), text.end(), text.begin(), straightened);
  return text;
}

/// Applies the steps that follow the replacement of character references.
std::u32string fixed_after_references(std::u32string text) {
  text = without_terminal_escapes(with_line_feeds(with_usual_characters(std::move(text))));
  std::erase_if(text, is_unwanted_control);
  return normal_form_c(text);
}

std::u32string without_references(const std::u32string& text) {
  return unescape_nested_references(
      text, [](std::u32string there) { return normal_form_c(with_usual_characters(std::move(there))); });
}

/// Fixes a line. `unescape` is false from the first line with "<" on, because the text may be HTML. The first pass
/// resolves one layer of nested references, and then removes control characters: in "\x1b[&amp;#49;m" the control
/// character must go before the next layer completes the escape. The second pass resolves all other layers, because one
/// layer per pass would take quadratic time.
std::u32string fixed_line(std::u32string text, bool unescape) {
  std::u32string fixed = fixed_after_references(unescape ? unescape_whole_references(text) : text);
  while (fixed != text) {
    text = std::move(fixed);
    fixed = fixed_after_references(unescape ? without_references(text) : text);
  }
  return text;
}

std::u32string fixed(std::u32string_view text) {
  std::u32string result;
  bool unescape = true;
  while (!text.empty()) {
    const size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::u32string_view line = text.substr(0, length);
    unescape = unescape && line.find('<') == std::u32string_view::npos;
    result += fixed_line(std::u32string(line), unescape);
    text.remove_prefix(length);
  }
  return result;
}

std::string with_single_spaces(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t space = white_space_length(text);
    const size_t length = space == 0 ? character_length(text) : space;
    if (space == 0) {
      result += text.substr(0, length);
    } else if (!result.empty() && result.back() != ' ') {
      result += ' ';
    }
    text.remove_prefix(length);
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

std::string_view without_outer_spaces(std::string_view text) {
  while (const size_t space = white_space_length(text)) text.remove_prefix(space);
  size_t end = 0;
  for (size_t at = 0; at < text.size(); at += character_length(text.substr(at)))
    if (white_space_length(text.substr(at)) == 0) end = at + character_length(text.substr(at));
  return text.substr(0, end);
}

/// Replaces each row of full stops by a space.
std::string without_rows_of_full_stops(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_not_of('.', at), text.size());
    result += end - at >= 2 ? " " : text.substr(at, std::max<size_t>(end - at, 1));
    at = std::max(end, at + 1);
  }
  return result;
}

/// Removes full stops between spaces. The text has single spaces. A space belongs to one full stop only, so the second
/// full stop of " . . " stays.
std::string without_lone_full_stops(const std::string& text) {
  std::string result = text;
  for (size_t at = result.find(" . "); at != std::string::npos; at = result.find(" . ", at + 1))
    result.replace(at, 3, " ");
  return result;
}

}  // namespace

std::string clean_prompt(const std::string& text) {
  return with_single_spaces(to_utf8(unescape_html(unescape_html(fixed(to_code_points(text))))));
}

std::string lower_prompt(const std::string& text) {
  std::u32string small;
  for (const char32_t code : to_code_points(without_outer_spaces(text))) {
    if (code == 0x130)
      small += U"i\u0307";
    else
      small += small_letter(code);
  }
  return to_utf8(small);
}

std::string without_stray_full_stops(const std::string& text) {
  std::string cleaned = text;
  for (int pass = 0; pass < 2; ++pass)
    cleaned = with_single_spaces(without_lone_full_stops(with_single_spaces(without_rows_of_full_stops(cleaned))));
  return cleaned;
}

std::string prepared_prompt(const std::string& text, const PromptRules& rules) {
  if (rules.lowered) return without_stray_full_stops(lower_prompt(rules.before + text + rules.after));
  return rules.before + (rules.cleaned ? clean_prompt(text) : text) + rules.after;
}

}  // namespace sparsereel::models
