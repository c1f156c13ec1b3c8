// Numbers that people write. No torch.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace sparsereel::app {

/// The number that all of the text is; nothing where it is none, or one that the type does not hold.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace sparsereel::app
