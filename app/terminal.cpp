// Escapes the characters that a terminal would act on instead of showing them.
#include "app/terminal.h"

#include <array>
#include <cstdio>
#include <utility>

#include "models/files/unicode.h"

namespace sparsereel::app {
namespace {

bool is_obeyed(char32_t code) {
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);  // C0, DEL, C1
  const bool turns = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return (control && code != '\n' && code != '\t') || turns;
}

/// Returns the code as an escape: "\x9b" for kind x, "\u001b" for kind u.
std::string escaped(char kind, unsigned code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), kind == 'x' ? "\\x%02x" : "\\u%04x", code);
  return text.data();
}

/// Returns how many bytes at the end of the text belong to an incomplete UTF-8 character.
size_t unfinished(std::string_view text) {
  constexpr size_t kLongest = 4;
  for (size_t back = 1; back < kLongest && back <= text.size(); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    const auto lead = static_cast<unsigned char>(tail[0]);
    if (lead < 0x80) return 0;
    if (lead >= 0xC0) return lead >= (back == 1 ? 0xC0U : back == 2 ? 0xE0U : 0xF0U) ? back : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::string_view character = text.substr(0, models::character_length(text));
    if (!models::is_utf8(character)) {
      character = text.substr(0, 1);
      result += escaped('x', static_cast<unsigned char>(text[0]));
    } else if (const char32_t code = models::to_code_points(character)[0]; is_obeyed(code)) {
      result += escaped('u', code);
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

std::string one_line(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) result += c == '\n' || c == '\t' ? escaped('u', c) : std::string(1, c);
  return result;
}

std::string indented_lines(std::string_view text) {
  std::string result;
  for (size_t end = 0; end != std::string_view::npos; text.remove_prefix(end == std::string_view::npos ? 0 : end + 1)) {
    end = text.find('\n');
    result += (result.empty() ? "" : "\n    ") + one_line(text.substr(0, end));
  }
  return result;
}

PrintableOnly::~PrintableOnly() {
  put(std::exchange(begun_, {}));
  stream_.rdbuf(target_);
}

bool PrintableOnly::put(std::string_view text) {
  const std::string clean = printable(text);
  return target_->sputn(clean.data(), std::ssize(clean)) == std::ssize(clean);
}

PrintableOnly::int_type PrintableOnly::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof())) return traits_type::not_eof(character);
  const char byte = traits_type::to_char_type(character);
  return xsputn(&byte, 1) == 1 ? character : traits_type::eof();
}

std::streamsize PrintableOnly::xsputn(const char* text, std::streamsize size) {
  std::string all = std::exchange(begun_, {}).append(text, static_cast<size_t>(size));
  begun_ = all.substr(all.size() - unfinished(all));
  all.resize(all.size() - begun_.size());
  return put(all) ? size : 0;
}

}  // namespace sparsereel::app
