// Finds the matches of kWordPattern by hand: std::regex knows no categories of Unicode, and a library would be one more
// dependency for a single expression.
#include "models/text/split_words.h"

#include <algorithm>
#include <array>

#include "models/files/unicode.h"

namespace sparsereel::models {
namespace {

bool ends_line(char32_t code) {
  return code == U'\r' || code == U'\n';
}

/// Returns the number of characters from `begin` for which `holds` is true.
template <typename Holds>
size_t run_while(std::u32string_view text, size_t begin, const Holds& holds) {
  const auto from = text.begin() + static_cast<std::ptrdiff_t>(begin);
  return static_cast<size_t>(std::find_if_not(from, text.end(), holds) - from);
}

size_t run_of(std::u32string_view text, size_t begin, CharacterKind kind) {
  return run_while(text, begin, [kind](char32_t code) { return kind_of(code) == kind; });
}

/// Returns the length of 's, 't, 're, 've, 'm, 'll or 'd in letters of any case at the start of `text`, or else 0.
size_t contraction(std::u32string_view text) {
  constexpr std::array<std::u32string_view, 7> kEndings = {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"};
  constexpr char32_t kLongS = 0x17F;  // equal to s when the case is ignored
  if (text.empty() || text[0] != U'\'') return 0;
  for (const std::u32string_view ending : kEndings) {
    const auto same = [](char32_t wanted, char32_t code) {
      return wanted == (code == kLongS ? U's' : small_letter(code));
    };
    const std::u32string_view found = text.substr(1, ending.size());
    if (std::ranges::equal(ending, found, same)) return 1 + ending.size();
  }
  return 0;
}

/// Returns the length of a match that starts with white space. If the white space has line ends, the match ends after
/// the last of them. Otherwise the match is all of the white space, if that is a single character or ends the text, or
/// else all but the last character, which begins the next word.
size_t white_space_match(std::u32string_view text) {
  const size_t all = run_of(text, 0, CharacterKind::white_space);
  const size_t last = text.substr(0, all).find_last_of(U"\r\n");
  if (last != std::u32string_view::npos) return last + 1;
  return all == text.size() || all == 1 ? all : all - 1;
}

/// Returns the length of the first match in a text that is not empty.
size_t word_length(std::u32string_view text) {
  if (const size_t length = contraction(text)) return length;
  const CharacterKind first = kind_of(text[0]);
  if (first == CharacterKind::letter) return run_of(text, 0, CharacterKind::letter);
  if (first == CharacterKind::number) return 1;
  if (!ends_line(text[0])) {
    if (const size_t letters = run_of(text, 1, CharacterKind::letter)) return 1 + letters;
  }
  const size_t space = text[0] == U' ' ? 1 : 0;
  if (const size_t others = run_of(text, space, CharacterKind::other)) {
    const size_t length = space + others;
    return length + run_while(text, length, ends_line);
  }
  return white_space_match(text);
}

}  // namespace

void split_words(std::u32string_view text, const std::function<void(std::u32string_view)>& word) {
  while (!text.empty()) {
    const size_t length = word_length(text);
    word(text.substr(0, length));
    text.remove_prefix(length);
  }
}

}  // namespace sparsereel::models
