// Writes the bytes of a SentencePiece model piece by piece, for tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

namespace sparsereel::test {

class SpieceBytes {
 public:
  SpieceBytes& piece(const std::string& text, float score, int type = 1) {
    std::string message = field(1, text) + "\x15";
    for (int i = 0; i < 4; ++i) message += static_cast<char>(std::bit_cast<uint32_t>(score) >> (8 * i));
    message += std::string("\x18") + static_cast<char>(type);
    bytes_ += field(1, message);
    return *this;
  }
  SpieceBytes& model_type(int type) {
    bytes_ += field(2, std::string("\x18") + static_cast<char>(type));
    return *this;
  }
  /// A normaliser's table that replaces the letter a, whose replacement starts at `place` of `replacements`.
  SpieceBytes& replace_a(const std::string& replacements, uint32_t place = 0) {
    bytes_ += field(3, field(2, charsmap_for_a(replacements, place)));
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
  static std::string u32(uint32_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  }
  /// The root's offset is 0, so that 'a' leads to the unit of its own number, and from there (offset 1) to its leaf.
  static std::string charsmap_for_a(const std::string& replacements, uint32_t place) {
    std::string units;
    for (uint32_t i = 0; i <= 'a'; ++i) units += u32(i == 'a' ? 1 << 10 | 1 << 8 | 'a' : i == ('a' ^ 1) ? place : 0);
    return u32(static_cast<uint32_t>(units.size())) + units + replacements;
  }
  std::string bytes_;
};

}  // namespace sparsereel::test
