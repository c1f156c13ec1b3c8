// Decomposes, sorts accents by their combining classes, composes.
#include "models/text/normal_form.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "models/text/unicode_tables.h"

namespace sparsereel::models {
namespace {

/// Hangul syllables are arithmetic: section 3.12 of the Unicode Standard.
namespace hangul {
constexpr char32_t kSyllable = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;
}  // namespace hangul

const Decomposition* decomposition_of(char32_t code) {
  const auto found = std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), code,
                                      [](const Decomposition& row, char32_t wanted) { return row.code < wanted; });
  return found != std::end(kDecompositions) && found->code == code ? found : nullptr;
}

int combining_class(char32_t code) {
  const auto found = std::lower_bound(std::begin(kCombiningClasses), std::end(kCombiningClasses), code,
                                      [](const ClassRun& run, char32_t wanted) { return run.last < wanted; });
  return found != std::end(kCombiningClasses) && found->first <= code ? found->value : 0;
}

void decompose(char32_t code, std::u32string& result) {
  if (code >= hangul::kSyllable && code < hangul::kSyllable + hangul::kSyllables) {
    const char32_t index = code - hangul::kSyllable, tail = index % hangul::kTails;
    result += hangul::kLead + index / (hangul::kVowels * hangul::kTails);
    result += hangul::kVowel + index / hangul::kTails % hangul::kVowels;
    if (tail != 0) result += hangul::kTail + tail;
    return;
  }
  const Decomposition* row = decomposition_of(code);
  if (row == nullptr) {
    result += code;
    return;
  }
  decompose(row->first, result);
  if (row->second != 0) decompose(row->second, result);
}

/// Accents after one letter, each class in the order in which it came.
void sort_accents(std::u32string& text) {
  for (auto start = text.begin(); start != text.end();) {
    const auto is_accent = [](char32_t code) { return combining_class(code) != 0; };
    start = std::find_if(start, text.end(), is_accent);
    const auto stop = std::find_if_not(start, text.end(), is_accent);
    std::stable_sort(start, stop, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    start = stop;
  }
}

/// 0: the two do not compose.
char32_t composed(char32_t first, char32_t second) {
  using namespace hangul;  // NOLINT(google-build-using-namespace): constants of this function
  if (first >= kLead && first < kLead + kLeads && second >= kVowel && second < kVowel + kVowels)
    return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTails;
  const bool open = first >= kSyllable && first < kSyllable + kSyllables && (first - kSyllable) % kTails == 0;
  if (open && second > kTail && second < kTail + kTails) return first + (second - kTail);
  static const auto pairs = [] {
    std::map<std::pair<char32_t, char32_t>, char32_t> all;
    for (const Decomposition& row : kDecompositions)
      if (row.composes) all[{row.first, row.second}] = row.code;
    return all;
  }();
  const auto found = pairs.find({first, second});
  return found == pairs.end() ? 0 : found->second;
}

}  // namespace

std::u32string normal_form_c(std::u32string_view text) {
  std::u32string apart, result;
  for (const char32_t code : text) decompose(code, apart);
  sort_accents(apart);
  size_t starter = std::u32string::npos;  // in the result: the last character that accents can join
  int last_class = 0;                     // of what was last put after it
  for (const char32_t code : apart) {
    const int code_class = combining_class(code);
    const bool adjacent = starter != std::u32string::npos && starter + 1 == result.size();
    const bool blocked = !adjacent && last_class >= code_class;
    const char32_t joined = starter == std::u32string::npos || blocked ? char32_t{0} : composed(result[starter], code);
    if (joined != 0) {
      result[starter] = joined;
      continue;
    }
    if (code_class == 0) starter = result.size();
    last_class = code_class;
    result += code;
  }
  return result;
}

}  // namespace sparsereel::models
