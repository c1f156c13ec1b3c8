// Reads a request's members from texts and writes them as texts, for each type of member. fields.cpp uses this.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"
#include "models/request/request.h"
#include "models/request/value_kind.h"

namespace sparsereel::models {

/// Reads and writes members of type Value. `name` is the name of the field, for errors.
template <typename Value>
struct FieldType;

template <typename Number>
Number read_number(const std::string& name, const std::string& text) {
  if (const auto number = parse_number<Number>(text)) return *number;
  if (std::is_unsigned_v<Number> && parse_number<int64_t>(text))
    throw bad_option(name, text + " is below 0", "give a number from 0 to 18446744073709551615");
  const bool whole = text.find_first_not_of("-0123456789") == std::string::npos && !text.empty();
  if (whole) throw bad_option(name, text + " is too large", "give a smaller number");
  throw bad_option(name, text + " is not a number", "give a number");
}

template <>
struct FieldType<std::string> {
  static constexpr ValueKind kind = ValueKind::text;
  static std::string read(const std::string& /*name*/, const std::string& text) { return text; }
  static std::string text(const std::string& value) { return value; }
};
template <>
struct FieldType<int64_t> {
  static constexpr ValueKind kind = ValueKind::whole;
  static constexpr auto read = read_number<int64_t>;
  static std::string text(int64_t value) { return std::to_string(value); }
};
template <>
struct FieldType<uint64_t> {
  static constexpr ValueKind kind = ValueKind::seed;
  static constexpr auto read = read_number<uint64_t>;
  static std::string text(uint64_t value) { return std::to_string(value); }
};
template <>
struct FieldType<double> {
  static constexpr ValueKind kind = ValueKind::number;
  static constexpr auto read = read_number<double>;
  static std::string text(double value) { return exact_text(value); }
};
template <>
struct FieldType<bool> {
  static constexpr ValueKind kind = ValueKind::flag;
  static bool read(const std::string& name, const std::string& text) {
    if (const auto flag = parse_flag(text)) return *flag;
    throw bad_option(name, text + " is neither true nor false", "give true or false");
  }
  static std::string text(bool value) { return value ? "true" : "false"; }
};
template <>
struct FieldType<std::vector<double>> {
  static constexpr ValueKind kind = ValueKind::numbers;
  static std::vector<double> read(const std::string& name, const std::string& text) {
    std::vector<double> numbers;
    for (const std::string& each : split(text, ',')) numbers.push_back(read_number<double>(name, each));
    return numbers;
  }
  static std::string text(const std::vector<double>& numbers) {
    std::string text;
    for (const double number : numbers) text += (text.empty() ? "" : ",") + exact_text(number);
    return text;
  }
};
template <>
struct FieldType<std::vector<LoraChoice>> {
  static constexpr ValueKind kind = ValueKind::loras;
  static std::vector<LoraChoice> read(const std::string& /*name*/, const std::string& text) {
    return parse_loras(text);
  }
  static std::string text(const std::vector<LoraChoice>& loras) { return text_of(loras, /*whole_paths=*/true); }
};
template <>
struct FieldType<CacheRule> {
  static constexpr ValueKind kind = ValueKind::text;
  static CacheRule read(const std::string& /*name*/, const std::string& text) { return parse_cache_rule(text); }
  static std::string text(const CacheRule& rule) { return rule.on() ? name(rule) : ""; }
};

template <>
struct FieldType<FirstSteps> {
  static constexpr ValueKind kind = ValueKind::text;
  static FirstSteps read(const std::string& name, const std::string& text) { return parse_first_steps(text, name); }
  static std::string text(const FirstSteps& first) { return name(first); }
};

template <>
struct FieldType<FrameArea> {
  static constexpr ValueKind kind = ValueKind::size;
  static FrameArea read(const std::string& name, const std::string& text) {
    if (const auto area = find_frame_area(text)) return *area;
    throw bad_option(name, text + " is not an area such as 480p or 720p", "give an area, or width and height instead");
  }
  static std::string text(const FrameArea& area) { return name(area); }
};

/// Reads and writes an enum that has a name() and a parser. The parser throws an Error that lists the choices.
template <typename Choice, auto Parse>
struct ChoiceType {
  static constexpr ValueKind kind = ValueKind::choice;
  static Choice read(const std::string& /*name*/, const std::string& text) { return Parse(text); }
  static std::string text(Choice choice) { return std::string(name(choice)); }
};
template <>
struct FieldType<GuidancePasses> : ChoiceType<GuidancePasses, parse_guidance_passes> {};
template <>
struct FieldType<ResizeRule> : ChoiceType<ResizeRule, parse_resize_rule> {};
template <>
struct FieldType<Offload> : ChoiceType<Offload, parse_offload> {};
template <>
struct FieldType<VaeTiling> : ChoiceType<VaeTiling, parse_vae_tiling> {};
template <>
struct FieldType<attention::Mode> : ChoiceType<attention::Mode, attention::parse_mode> {};
template <>
struct FieldType<attention::Dropped> : ChoiceType<attention::Dropped, attention::parse_dropped> {};
template <>
struct FieldType<attention::Ranking> : ChoiceType<attention::Ranking, attention::parse_ranking> {};
template <>
struct FieldType<hilbert::TokenOrder> : ChoiceType<hilbert::TokenOrder, hilbert::parse_token_order> {};

template <typename Value>
struct FieldType<std::optional<Value>> {
  static constexpr ValueKind kind = FieldType<Value>::kind;
  static std::optional<Value> read(const std::string& name, const std::string& text) {
    return FieldType<Value>::read(name, text);
  }
  static std::string text(const std::optional<Value>& value) { return value ? FieldType<Value>::text(*value) : ""; }
};

/// Returns the value to store in a recipe; null if the recipe omits it.
template <typename Value>
nlohmann::json saved(const Value& value) {
  if constexpr (std::is_enum_v<Value>)
    return FieldType<Value>::text(value);
  else
    return value;
}
template <typename Value>
nlohmann::json saved(const std::optional<Value>& value) {
  return value ? saved(*value) : nlohmann::json();
}

}  // namespace sparsereel::models
