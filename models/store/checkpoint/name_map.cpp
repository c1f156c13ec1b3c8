// Matches names with patterns and rewrites them.
#include "models/store/checkpoint/name_map.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace sparsereel::models {
namespace {

/// If the name is `from`, or begins with `from` and a dot, returns it with `to` in place of `from`. Returns nullopt for
/// other names.
std::optional<std::string> rewritten(std::string_view name, std::string_view from, std::string_view to) {
  std::vector<std::string_view> numbers;
  for (const char c : from) {
    const size_t digits = c == '*' ? std::min(name.find_first_not_of("0123456789"), name.size()) : 0;
    if (c == '*' ? digits == 0 : !name.starts_with(c)) return std::nullopt;
    if (c == '*') numbers.push_back(name.substr(0, digits));
    name.remove_prefix(c == '*' ? digits : 1);
  }
  if (!name.empty() && name.front() != '.') return std::nullopt;
  std::string result;
  size_t used = 0;
  for (const char c : to) {
    if (c == '*')
      result += numbers.at(used++);
    else
      result += c;
  }
  return result.append(name);
}

}  // namespace

PlacedName NameMap::placed_second(const std::string& first) const {
  for (const auto& [ours, theirs] : pairs_)
    if (const auto name = rewritten(first, ours, theirs)) return {*name};
  for (const MovedRows& rows : moved_)
    if (const auto name = rewritten(first, rows.first, rows.second)) return {*name, &rows};
  return {first};
}

std::vector<PlacedName> NameMap::placed_firsts(const std::string& second) const {
  for (const auto& [ours, theirs] : pairs_)
    if (const auto name = rewritten(second, theirs, ours)) return {{*name}};
  std::vector<PlacedName> layers;
  for (const MovedRows& rows : moved_)
    if (const auto name = rewritten(second, rows.second, rows.first)) layers.push_back({*name, &rows});
  return layers.empty() ? std::vector<PlacedName>{{second}} : layers;
}

}  // namespace sparsereel::models
