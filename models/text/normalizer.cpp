// Looks up grapheme clusters and characters in the precompiled table.
#include "models/text/normalizer.h"

#include "hilbert/error.h"
#include "models/text/unicode.h"

namespace sparsereel::models {
namespace {

constexpr size_t kLongestCluster = 5;  // bytes; longer clusters are normalised character by character

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// The fields of a double-array unit.
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

}  // namespace

Normalizer::Normalizer(std::string_view charsmap, const std::string& path) {
  if (charsmap.empty()) return;
  const size_t trie_bytes = charsmap.size() < 4 ? 0 : read_u32(charsmap);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > charsmap.size() - 4) {
    throw bad_input(path + ": normalizer_spec.precompiled_charsmap is damaged",
                    "download the tokenizer's spiece.model again");
  }
  for (size_t i = 0; i < trie_bytes; i += 4) units_.push_back(read_u32(charsmap.substr(4 + i)));
  replacements_ = charsmap.substr(4 + trie_bytes);
  if (!is_utf8(replacements_)) {
    throw bad_input(path + ": normalizer_spec.precompiled_charsmap holds a replacement that is not UTF-8",
                    "download the tokenizer's spiece.model again");
  }
}

const char* Normalizer::find(std::string_view text) const {
  if (units_.empty()) return nullptr;
  size_t node = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return nullptr;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const size_t place = node < units_.size() ? value_of(units_[node]) : replacements_.size();
    const bool starts_a_character = place < replacements_.size() && (replacements_[place] & 0xC0) != 0x80;
    return starts_a_character ? replacements_.c_str() + place : nullptr;
  }
  return nullptr;
}

std::string Normalizer::normalize(std::string_view text) const {
  std::string result;
  while (!text.empty()) {
    std::string_view cluster = text.substr(0, grapheme_length(text));
    text.remove_prefix(cluster.size());
    const char* whole = cluster.size() <= kLongestCluster ? find(cluster) : nullptr;
    if (whole != nullptr) {
      result += whole;
      continue;
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, character_length(cluster));
      const char* replacement = find(character);
      result += replacement != nullptr ? std::string_view(replacement) : character;
      cluster.remove_prefix(character.size());
    }
  }
  return result;
}

}  // namespace sparsereel::models
