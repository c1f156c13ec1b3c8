// Reads LoRA settings, and matches layers with PEFT's patterns.
#include "models/store/checkpoint/lora_settings.h"

#include <algorithm>
#include <charconv>
#include <regex>
#include <system_error>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/files/json_text.h"
#include "models/request/lora_choice.h"
#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kMetadata = "lora_adapter_metadata";  // diffusers' key
/// One trainer's key in the header. Its value holds an alpha for each kind of layer. The start of the last word of a
/// layer's name tells its kind (kAlphasOfKinds).
constexpr const char* kArguments = "kwargs";
constexpr std::pair<const char*, std::string_view> kAlphasOfKinds[] = {{"qkv_proj_lora_alpha", "qkv_"},
                                                                       {"out_proj_lora_alpha", "proj_"}};
constexpr const char* kAlphas[] = {"lora_alpha", "network_alpha", "alpha"};
constexpr const char* kCorrect = "correct this field, or export the LoRA again";
constexpr size_t kMostOfPattern = 512;    // longest pattern, in bytes
constexpr size_t kMostExpressions = 256;  // most regular expressions that one lookup compiles

constexpr char kAny = '\0';  // in a plain pattern: matches any one character

/// If a pattern has no operators except dots, returns its characters, with kAny for a dot that is not escaped. Returns
/// nullopt for other patterns.
std::optional<std::string> plain_pattern(std::string_view pattern) {
  constexpr std::string_view kOperators = "\\^$*+?()[]{}|";
  std::string plain;
  for (; !pattern.empty(); pattern.remove_prefix(1)) {
    const bool is_escaped = pattern.starts_with("\\.");
    if (is_escaped)
      pattern.remove_prefix(1);
    else if (kOperators.find(pattern.front()) != std::string_view::npos)
      return std::nullopt;
    plain += !is_escaped && pattern.front() == '.' ? kAny : pattern.front();
  }
  return plain;
}

bool fits_plain(std::string_view plain, std::string_view layer, bool from_start) {
  if (plain.size() > layer.size() || (from_start && plain.size() != layer.size())) return false;
  const size_t before = layer.size() - plain.size();
  const auto same = [](char wanted, char c) { return wanted == kAny || wanted == c; };
  return (before == 0 || layer[before - 1] == '.') && std::ranges::equal(plain, layer.substr(before), same);
}

/// Applies PEFT's rule: the pattern must match the whole name, or the rest of the name after one of its dots. Returns
/// nullopt if the pattern cannot be read. A file may come from anywhere, so limits and libstdc++'s polynomial matcher
/// bound the time. The default matcher may take exponential time.
std::optional<bool> fits(std::string_view pattern, const std::string& layer, size_t& expressions) {
  const bool from_start = pattern.starts_with('^');
  if (const auto plain = plain_pattern(pattern.substr(from_start ? 1 : 0)))
    return fits_plain(*plain, layer, from_start);
  // Patterns with '{' are refused: counted repeats would multiply the states of the matcher.
  if (pattern.size() > kMostOfPattern || pattern.find('{') != std::string_view::npos ||
      ++expressions > kMostExpressions)
    return std::nullopt;
  try {
    const std::string whole = "(.*\\.)?(" + std::string(pattern) + ")";
    return std::regex_match(layer, std::regex(whole, std::regex::ECMAScript | std::regex_constants::__polynomial));
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

/// Returns the number that the text is, or else the text itself.
json number_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? json(value) : json(text);
}

/// Returns the value for an error: a number, or the beginning of a text or another value in ASCII.
std::string shown(const json& value) {
  constexpr size_t kMost = 40;
  const std::string text =
      value.is_number() ? exact_text(value.get<double>()) : value.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace

const json* LoraSettings::Config::find(const std::string& part, const char* name) const {
  const auto found = values.find(by_part && !part.empty() ? part + "." + name : name);
  return found == values.end() || found->is_null() ? nullptr : &*found;
}

double LoraSettings::Config::number(const json& value, const std::string& name) const {
  if (!value.is_number() || !fits_float(value.get<double>()))
    throw bad_file(file, where + name + " is " + shown(value) + ", not a finite 32-bit number", kCorrect);
  return value.get<double>();
}

std::optional<double> LoraSettings::Config::alpha_of_pattern(const std::string& part, const std::string& layer) const {
  const json* patterns = find(part, "alpha_pattern");
  if (patterns == nullptr || !patterns->is_object()) return std::nullopt;
  size_t expressions = 0;
  for (const auto& [pattern, alpha] : patterns->items()) {
    const std::optional<bool> found = fits(pattern, layer, expressions);
    if (!found)
      throw bad_file(file,
                     where + "alpha_pattern " + in_quotes(pattern) + " is a regular expression that cannot be read",
                     "write out the names of the layers");
    if (*found) return number(alpha, "alpha_pattern");
  }
  return std::nullopt;
}

void LoraSettings::Config::each_whole_alpha(const std::string& part,
                                            const std::function<void(const std::string&, double)>& say) const {
  for (const char* name : kAlphas)
    if (const json* alpha = find(part, name)) say(name, number(*alpha, name));
}

fs::path adapter_config_of(const fs::path& file) {
  fs::path config = file.parent_path() / "adapter_config.json";
  std::error_code ignored;
  return file.stem() == "adapter_model" && fs::exists(config, ignored) ? config : fs::path();
}

LoraSettings::LoraSettings(const fs::path& file, const std::map<std::string, std::string>& metadata) {
  const auto add = [&](const std::string& of, const std::string& where, json values, bool by_part) {
    if (!values.is_object()) throw bad_file(of, where + "is not a JSON object", kCorrect);
    configs_.push_back({.file = of, .where = where, .values = std::move(values), .by_part = by_part});
  };
  const std::string name = file.string(), label = std::string(kMetadata) + ": ";
  if (const auto found = metadata.find(kMetadata); found != metadata.end())
    add(name, label, parse_json(found->second, name + ": " + kMetadata, kCorrect), /*by_part=*/true);
  if (const fs::path config = adapter_config_of(file); !config.empty())
    add(config.string(), "", read_json(config, kCorrect), /*by_part=*/false);
  json alphas = json::object();
  for (const char* key : kAlphas)
    if (const auto found = metadata.find(key); found != metadata.end()) alphas[key] = number_in(found->second);
  add(name, "metadata of the header: ", std::move(alphas), /*by_part=*/false);
  arguments_ = {.file = name, .where = std::string(kArguments) + ": ", .values = json::object()};
  // A value that is not an object is ignored, because other programs may use this key for other things.
  if (const auto found = metadata.find(kArguments); found != metadata.end())
    if (json arguments = parse_json_if_valid(found->second); arguments.is_object())
      arguments_.values = std::move(arguments);
}

std::optional<double> LoraSettings::alpha(const std::string& part, const std::string& layer) const {
  const std::optional<double> whole = whole_alpha(part);
  for (const Config& config : configs_)
    if (const auto alpha = config.alpha_of_pattern(part, layer)) return alpha;
  if (whole) return whole;
  const std::string last = layer.substr(layer.rfind('.') + 1);
  for (const auto& [name, kind] : kAlphasOfKinds)
    if (last.starts_with(kind) && arguments_.values.contains(name))
      return arguments_.number(arguments_.values[name], name);
  return std::nullopt;
}

std::optional<double> LoraSettings::whole_alpha(const std::string& part) const {
  std::optional<double> first;
  std::string said;
  for (const Config& config : configs_)
    config.each_whole_alpha(part, [&](const std::string& name, double alpha) {
      const std::string own = config.where + name + " " + exact_text(alpha);
      if (first && *first != alpha)
        throw bad_file(config.file, own + " contradicts " + said, "remove the one that is wrong");
      if (!first) said = own;
      first = alpha;
    });
  return first;
}

const LoraSettings::Config* LoraSettings::flag(const std::string& part, const char* name) const {
  for (const Config& config : configs_)
    if (const json* value = config.find(part, name); value != nullptr && *value == true) return &config;
  return nullptr;
}

std::string LoraSettings::file_with_dora(const std::string& part) const {
  const Config* config = flag(part, "use_dora");
  return config == nullptr ? "" : config->file;
}

}  // namespace sparsereel::models
