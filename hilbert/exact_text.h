// Writes numbers exactly, for messages and files.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace sparsereel {

/// Returns the shortest text that reads back as the same number: 1.0000001 does not become 1, and tiny numbers do not
/// become 0.
inline std::string exact_text(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

}  // namespace sparsereel
