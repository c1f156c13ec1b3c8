// Converts names of files, formats and repositories to lower case.
#pragma once

#include <algorithm>
#include <string>

namespace sparsereel {

/// Converts A to Z; all other bytes stay.
inline std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

}  // namespace sparsereel
