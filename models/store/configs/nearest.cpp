// Computes the optimal string alignment distance.
#include "models/store/configs/nearest.h"

#include <algorithm>

namespace sparsereel::models {
namespace {

/// A longer word cannot be a mistyped name, so it is not compared. The table of edits grows with the square of the
/// length.
constexpr size_t kLongest = 64;

size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> table(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t fewest = kLongest;
  if (word.empty() || word.size() > kLongest) return best;
  for (const std::string& candidate : candidates) {
    const size_t distance = edits(word, candidate);
    const size_t allowed = std::max<size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (distance > allowed || distance >= fewest || distance >= candidate.size()) continue;
    best = candidate;
    fewest = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise) {
  const std::string name = nearest(word, candidates);
  return name.empty() ? otherwise : "did you mean " + name + "? " + otherwise;
}

}  // namespace sparsereel::models
