// Walks every path of the trie once.
#include "models/text/charsmap.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hilbert/error.h"
#include "models/files/unicode.h"

namespace sparsereel::models {
namespace {

constexpr int kMostMatches = 32;   // SentencePiece's limit for the keys that match at one position of a text
constexpr int kLongestKey = 1024;  // bytes; Unicode's longest key has 18. The limit also ends circular walks.

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// The bit fields of a unit of the trie (a double array).
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
uint32_t label_of(uint32_t unit) {
  return unit & ((1U << 31) | 0xFF);
}
bool has_leaf(uint32_t unit) {
  return ((unit >> 8) & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & ((1U << 31) - 1);
}

class CharsmapCheck {
 public:
  CharsmapCheck(std::string_view charsmap, const std::string& path) : path_(path) {
    const size_t trie_bytes = charsmap.size() < 4 ? 0 : read_u32(charsmap);
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > charsmap.size() - 4)
      throw damaged("has sizes that do not fit");
    for (size_t i = 0; i < trie_bytes; i += 4) units_.push_back(read_u32(charsmap.substr(4 + i)));
    replacements_ = charsmap.substr(4 + trie_bytes);
    if (!replacements_.ends_with('\0') || !is_utf8(replacements_))
      throw damaged("holds a replacement that is not UTF-8 or has no end");
    known_.resize(units_.size());
  }

  void run() {
    if (most_matches(offset_of(units_[0]), 0) > kMostMatches)
      throw damaged("holds more strings that start alike than SentencePiece has room for");
  }

 private:
  Error damaged(const std::string& problem) const {
    return bad_input(path_ + ": normalizer_spec.precompiled_charsmap " + problem,
                     "download the tokenizer folder again");
  }

  void check_replacement(size_t leaf) const {
    const size_t place = value_of(units_[leaf]);
    const bool starts_a_character = place < replacements_.size() && (replacements_[place] & 0xC0) != 0x80;
    if (!starts_a_character) throw damaged("points at no replacement");
  }

  /// Returns the largest number of strings that end on one path from `base`. The child of a node for a byte is the unit
  /// at the node's base xor the byte; the leaf is the unit at the base itself. SentencePiece reads these units for any
  /// byte that a text may have, so all 256 must exist.
  int most_matches(size_t base, int depth) {
    if ((base | 0xFF) >= units_.size()) throw damaged("leads out of its trie");
    if (depth > kLongestKey) throw damaged("goes in a circle");
    if (known_[base] != 0) return known_[base] - 1;
    int most = 0;
    for (size_t byte = 0; byte <= 0xFF; ++byte) {
      const size_t node = base ^ byte;
      const uint32_t unit = units_[node];
      if (label_of(unit) != byte) continue;
      const size_t child = node ^ offset_of(unit);
      const int below = most_matches(child, depth + 1);
      if (has_leaf(unit)) check_replacement(child);
      most = std::max(most, below + (has_leaf(unit) ? 1 : 0));
    }
    known_[base] = most + 1;
    return most;
  }

  const std::string& path_;
  std::vector<uint32_t> units_;
  std::string_view replacements_;
  std::vector<int> known_;  // by base: the result of most_matches() plus 1
};

}  // namespace

void check_charsmap(std::string_view charsmap, const std::string& path) {
  if (!charsmap.empty()) CharsmapCheck(charsmap, path).run();
}

}  // namespace sparsereel::models
