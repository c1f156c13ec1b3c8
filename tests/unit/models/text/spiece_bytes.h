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
  const std::string& bytes() const { return bytes_; }

 private:
  static std::string field(int number, const std::string& content) {  // under 128 bytes
    return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(content.size()) + content;
  }
  std::string bytes_;
};

}  // namespace sparsereel::test
