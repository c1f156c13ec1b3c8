// Builds the bytes of a SentencePiece model for tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace sparsereel::test {

inline std::string u32(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

/// Returns a normalizer's table: the units of a trie, then the texts of replacements (see models/text/charsmap.h).
inline std::string charsmap_of(const std::vector<uint32_t>& units, const std::string& replacements) {
  std::string bytes = u32(static_cast<uint32_t>(4 * units.size()));
  for (const uint32_t unit : units) bytes += u32(unit);
  return bytes + replacements;
}

/// Returns a trie with the single string "a", whose replacement is at byte `place`. The root's children start at unit
/// 256. The leaf of "a" is at offset 1 from the unit of "a". Unused units have a label that is no byte.
inline std::vector<uint32_t> units_that_replace_a(uint32_t place = 0) {
  constexpr uint32_t kNoLabel = 1U << 31;
  std::vector<uint32_t> units(512, kNoLabel);
  units[0] = 256 << 10;
  units[256 ^ 'a'] = 1 << 10 | 1 << 8 | 'a';
  units[256 ^ 'a' ^ 1] = kNoLabel | place;
  return units;
}

class SpieceBytes {
 public:
  SpieceBytes& piece(const std::string& text, float score, int type = 1) {
    std::string message = field(1, text) + "\x15" + u32(std::bit_cast<uint32_t>(score));
    message += std::string("\x18") + static_cast<char>(type);
    bytes_ += field(1, message);
    return *this;
  }
  SpieceBytes& model_type(int type) {
    bytes_ += field(2, std::string("\x18") + static_cast<char>(type));
    return *this;
  }
  /// Adds a normalizer's table that replaces the letter a. The replacement starts at `place` in `replacements`.
  SpieceBytes& replace_a(const std::string& replacements, uint32_t place = 0) {
    bytes_ += field(3, field(2, charsmap_of(units_that_replace_a(place), replacements)));
    return *this;
  }
  /// Adds a flag of the normalizer with this field number and value.
  SpieceBytes& normalizer_flag(int number, bool value) {
    bytes_ += field(3, {static_cast<char>(number << 3), static_cast<char>(value)});
    return *this;
  }
  SpieceBytes& byte_fallback() {
    bytes_ += field(2, "\x98\x02\x01");
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  static std::string field(int number, const std::string& content) {
    std::string bytes(1, static_cast<char>(number << 3 | 2));
    size_t length = content.size();
    for (; length > 127; length >>= 7) bytes += static_cast<char>(length | 128);
    return bytes + static_cast<char>(length) + content;
  }
  std::string bytes_;
};

}  // namespace sparsereel::test
