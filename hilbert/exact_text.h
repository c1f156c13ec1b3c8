// Numbers in messages and files.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace sparsereel {

/// The shortest text that reads back as the same number: 1.0000001 is no 1, however near to 0 a number is, it is no 0.
inline std::string exact_text(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

}  // namespace sparsereel
