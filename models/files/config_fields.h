// Reads the fields of one config.json with type and range checks; every Error names the file and the field. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sparsereel::models {

/// Limit for widths, lengths and counts; real ones are smaller. A product of three of them fits into 63 bits.
inline constexpr int64_t kMaxSize = int64_t{1} << 20;
inline constexpr int64_t kMaxLayers = 4096;

/// Joins choices for error messages: "a, b or c".
std::string list_of(const std::vector<std::string>& choices);
/// Joins the first 20 names for an error message; "..." stands for the others: "a, b, c, ...".
std::string first_of(const std::vector<std::string>& names);

/// Reads fields. If a field is missing, the result is `fallback`, the default of the model's reference implementation.
/// null counts as a wrong type unless a field is optional. Fields that no call reads are ignored, because published
/// configs contain many of them.
class ConfigFields {
 public:
  /// Keeps references to both arguments. Throws Error unless json is an object.
  ConfigFields(const nlohmann::json& json, const std::string& file);

  int64_t integer(const char* field, int64_t fallback, int64_t least = 1, int64_t most = kMaxSize) const;
  std::optional<int64_t> optional_integer(const char* field, int64_t least = 1, int64_t most = kMaxSize) const;
  double number(const char* field, double fallback, double least, double most) const;
  double positive_number(const char* field, double fallback) const;
  bool boolean(const char* field, bool fallback) const;
  std::vector<bool> booleans(const char* field, const std::vector<bool>& fallback) const;
  std::string choice(const char* field, const std::string& fallback, const std::vector<std::string>& choices) const;
  std::vector<int64_t> integers(const char* field, const std::vector<int64_t>& fallback,
                                int64_t least = 1) const;                                    // each at most kMaxSize
  std::vector<double> optional_numbers(const char* field, double least, double most) const;  // empty if null or missing
  std::vector<std::string> strings(const char* field, const std::vector<std::string>& fallback) const;

  /// Throws Error unless the field is missing or null: this program does not support what other values ask for.
  void require_null(const char* field) const;
  /// Throws Error if `_class_name` exists and differs: the file then belongs to another model.
  void require_class(const std::string& class_name) const;

  /// Throws Error unless `divisor` divides `value`. `field` may describe a product of fields.
  void require_multiple(const std::string& field, int64_t value, int64_t divisor) const;
  /// Throws Error if `width`, the total width of an attention layer's heads, exceeds kMaxSize. `field` describes how it
  /// is computed.
  void check_width(const std::string& field, int64_t width) const;

  [[noreturn]] void fail(const std::string& field, const std::string& problem) const;
  [[noreturn]] void unsupported(const std::string& field, const std::string& problem,
                                const std::string& supported) const;

 private:
  const nlohmann::json* find(const char* field) const;
  const nlohmann::json* find_not_null(const char* field) const;
  bool check_boolean(const char* field, const nlohmann::json& value) const;
  int64_t check_integer(const char* field, const nlohmann::json& value, int64_t least, int64_t most) const;
  double check_number(const char* field, const nlohmann::json& value, double least, double most) const;

  const nlohmann::json& json_;
  const std::string& file_;
};

/// Throws Error unless `field` of `file` equals `other_field` of the transformer's config.
void check_fits(const std::string& file, const std::string& field, int64_t value, const std::string& other_field,
                int64_t other);

}  // namespace sparsereel::models
