// Checks types and ranges of config fields.
#include "models/files/config_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "hilbert/error.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

/// Formats a value for an error message. For an array or an object, which may be long, returns only its type.
std::string shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  return value.is_string() ? in_quotes(value.get_ref<const std::string&>()) : value.dump();
}

std::string plain(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

std::string list_of(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

std::string first_of(const std::vector<std::string>& names) {
  constexpr size_t kListed = 20;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text + (names.size() > kListed ? ", ..." : "");
}

ConfigFields::ConfigFields(const json& json, const std::string& file) : json_(json), file_(file) {
  if (!json.is_object()) throw bad_file(file, "is not a JSON object", "download or export the file again");
}

void ConfigFields::fail(const std::string& field, const std::string& problem) const {
  throw bad_file(file_, field + " " + problem, "correct " + field + " there, or download the file again");
}

void ConfigFields::unsupported(const std::string& field, const std::string& problem,
                               const std::string& supported) const {
  throw bad_file(file_, field + " " + problem + " is not supported",
                 "use a checkpoint whose " + field + " is " + supported);
}

const json* ConfigFields::find(const char* field) const {
  const auto found = json_.find(field);
  return found == json_.end() ? nullptr : &*found;
}

const json* ConfigFields::find_not_null(const char* field) const {
  const json* value = find(field);
  return value != nullptr && value->is_null() ? nullptr : value;
}

int64_t ConfigFields::check_integer(const char* field, const json& value, int64_t least, int64_t most) const {
  const std::string wanted = ", not a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value.is_number_integer()) fail(field, "is " + shown(value) + wanted);
  const bool too_large =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (too_large || value.get<int64_t>() < least || value.get<int64_t>() > most)
    fail(field, "is " + shown(value) + wanted);
  return value.get<int64_t>();
}

double ConfigFields::check_number(const char* field, const json& value, double least, double most) const {
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
    fail(field, "is " + shown(value) + ", not a number from " + plain(least) + " to " + plain(most));
  return value.get<double>();
}

int64_t ConfigFields::integer(const char* field, int64_t fallback, int64_t least, int64_t most) const {
  const json* value = find(field);
  return value == nullptr ? fallback : check_integer(field, *value, least, most);
}

std::optional<int64_t> ConfigFields::optional_integer(const char* field, int64_t least, int64_t most) const {
  const json* value = find_not_null(field);
  if (value == nullptr) return std::nullopt;
  return check_integer(field, *value, least, most);
}

double ConfigFields::number(const char* field, double fallback, double least, double most) const {
  const json* value = find(field);
  return value == nullptr ? fallback : check_number(field, *value, least, most);
}

double ConfigFields::positive_number(const char* field, double fallback) const {
  const double value = number(field, fallback, 0, 1e9);
  if (value == 0) fail(field, "is 0, not a positive number");
  return value;
}

bool ConfigFields::check_boolean(const char* field, const json& value) const {
  if (!value.is_boolean()) fail(field, "is " + shown(value) + ", not true or false");
  return value.get<bool>();
}

bool ConfigFields::boolean(const char* field, bool fallback) const {
  const json* value = find(field);
  return value == nullptr ? fallback : check_boolean(field, *value);
}

std::vector<bool> ConfigFields::booleans(const char* field, const std::vector<bool>& fallback) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_array()) fail(field, "is " + shown(*value) + ", not an array");
  std::vector<bool> flags;
  for (const json& each : *value) flags.push_back(check_boolean(field, each));
  return flags;
}

std::string ConfigFields::choice(const char* field, const std::string& fallback,
                                 const std::vector<std::string>& choices) const {
  const json* value = find(field);
  if (value != nullptr && !value->is_string()) fail(field, "is " + shown(*value) + ", not a string");
  std::string text = value == nullptr ? fallback : value->get<std::string>();
  if (std::find(choices.begin(), choices.end(), text) == choices.end())
    unsupported(field, in_quotes(text), list_of(choices));
  return text;
}

std::vector<int64_t> ConfigFields::integers(const char* field, const std::vector<int64_t>& fallback,
                                            int64_t least) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_array()) fail(field, "is " + shown(*value) + ", not an array");
  std::vector<int64_t> numbers;
  for (const json& each : *value) numbers.push_back(check_integer(field, each, least, kMaxSize));
  return numbers;
}

std::vector<double> ConfigFields::optional_numbers(const char* field, double least, double most) const {
  const json* value = find_not_null(field);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array()) fail(field, "is " + shown(*value) + ", not an array");
  for (const json& each : *value) numbers.push_back(check_number(field, each, least, most));
  return numbers;
}

std::vector<std::string> ConfigFields::strings(const char* field, const std::vector<std::string>& fallback) const {
  const json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_array()) fail(field, "is " + shown(*value) + ", not an array");
  std::vector<std::string> texts;
  for (const json& each : *value) {
    if (!each.is_string()) fail(field, "holds " + shown(each) + ", not a string");
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

void ConfigFields::require_null(const char* field) const {
  if (const json* value = find_not_null(field)) unsupported(field, shown(*value), "null");
}

void ConfigFields::require_multiple(const std::string& field, int64_t value, int64_t divisor) const {
  if (value % divisor != 0)
    fail(field, "is " + std::to_string(value) + ", not a multiple of " + std::to_string(divisor));
}

void ConfigFields::check_width(const std::string& field, int64_t width) const {
  if (width > kMaxSize) fail(field, "is " + std::to_string(width) + ", above " + std::to_string(kMaxSize));
}

void ConfigFields::require_class(const std::string& class_name) const {
  choice("_class_name", class_name, {class_name});
}

void check_fits(const std::string& file, const std::string& field, int64_t value, const std::string& other_field,
                int64_t other) {
  if (value == other) return;
  throw bad_file(file,
                 field + " " + std::to_string(value) + " does not fit the transformer's " + other_field + " " +
                     std::to_string(other),
                 "use components of one checkpoint");
}

}  // namespace sparsereel::models
