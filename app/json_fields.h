// Reads fields of JSON objects that may be missing or of another type.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace sparsereel::app {

/// Returns the string in the field `name`; empty if the field is missing or holds no string.
inline std::string text_of(const nlohmann::json& object, const std::string& name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string() ? field->get<std::string>() : "";
}

/// Returns the number in the field `name`; nothing if the field is missing or holds no number.
inline std::optional<double> number_of(const nlohmann::json& object, const std::string& name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_number() ? std::optional(field->get<double>()) : std::nullopt;
}

}  // namespace sparsereel::app
