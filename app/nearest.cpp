// Edit distance with transpositions (Damerau's, restricted); see nearest.h.
#include "app/nearest.h"

#include <algorithm>

namespace sparsereel::app {
namespace {

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

std::string nearest(std::string_view given, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;  // no name is longer: what is given may be anything
  std::string best;
  size_t least = given.size() / 3 + 1;
  for (const std::string& name : names) {
    const size_t changes = given.size() > kLongest ? given.size() : distance(given, name);
    if (changes < least || (changes == least && best.empty() && changes < 2)) {
      least = changes;
      best = name;
    }
  }
  return best;
}

}  // namespace sparsereel::app
