// Parses numbers, flags and lists that people write.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel {

/// Returns the number that the whole text represents; nullopt if it is not a number of this type.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

/// Returns true for "true", "on" and "yes", and false for "false", "off" and "no"; nullopt for any other word.
inline std::optional<bool> parse_flag(std::string_view text) {
  if (text == "true" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "off" || text == "no") return false;
  return std::nullopt;
}

/// Splits "a, b" into "a" and "b" without surrounding spaces; keeps empty items.
inline std::vector<std::string> split(std::string_view text, char separator) {
  constexpr std::string_view kSpace = " \t\n";
  std::vector<std::string> items;
  for (bool more = true; more;) {
    const size_t end = text.find(separator);
    more = end != std::string_view::npos;
    std::string_view item = text.substr(0, end);
    item.remove_prefix(std::min(item.find_first_not_of(kSpace), item.size()));
    item.remove_suffix(item.size() - (item.find_last_not_of(kSpace) + 1));
    items.emplace_back(item);
    text.remove_prefix(more ? end + 1 : text.size());
  }
  return items;
}

}  // namespace sparsereel
