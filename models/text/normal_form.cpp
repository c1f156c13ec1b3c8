// Composes the text in parts, between characters that Unicode 9 did not have. By Unicode 9's tables, such a character
// ends every sequence of accents.
#include "models/text/normal_form.h"

#include <algorithm>
#include <iterator>

#include "models/files/unicode.h"

namespace sparsereel::models {
namespace {

struct CodeRange {
  char32_t first, last;
};

/// Ascending ranges: accents that Unicode 10 or later added, and blocks added since then that hold accents or letters
/// that compose.
constexpr CodeRange kLater[] = {{0x07FD, 0x07FD},   {0x0897, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},
                                {0x0C3C, 0x0C3C},   {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},
                                {0x1ABF, 0x1AFF},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x105C0, 0x105FF},
                                {0x10D00, 0x10D8F}, {0x10E80, 0x10FDF}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
                                {0x11380, 0x113FF}, {0x1145E, 0x1145E}, {0x11800, 0x1184F}, {0x11900, 0x11ABF},
                                {0x11D00, 0x11DAF}, {0x11F00, 0x11F5F}, {0x16100, 0x1613F}, {0x16D40, 0x16D7F},
                                {0x16FF0, 0x16FFF}, {0x1E030, 0x1E14F}, {0x1E290, 0x1E2FF}, {0x1E4D0, 0x1E5FF}};

bool is_later(char32_t code) {
  const auto after = std::ranges::upper_bound(kLater, code, {}, &CodeRange::first);
  return after != std::begin(kLater) && code <= std::prev(after)->last;
}

}  // namespace

std::u32string normal_form_c_of_tokenizers(std::u32string_view text) {
  std::u32string result;
  while (!text.empty()) {
    const auto later = std::ranges::find_if(text, is_later);
    const auto count = static_cast<size_t>(later - text.begin());
    result += normal_form_c(text.substr(0, count));
    if (later != text.end()) result += *later;
    text.remove_prefix(std::min(count + 1, text.size()));
  }
  return result;
}

}  // namespace sparsereel::models
