// Finds the preset that a run uses, and its options if the run has few steps.
#include "models/request/presets.h"

#include <algorithm>

#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/request/fields.h"

namespace sparsereel::models {
namespace {

using OptionValues = std::map<std::string, std::string>;

const char* const kOverSteps[] = {"cache", "dense_steps", "exact_steps"};

std::string chosen_name(const ModelConfig& config, const OptionValues& given) {
  if (const auto named = given.find("preset"); named != given.end()) {
    const bool other_name = named->second == "quality" && !config.presets.contains("quality");
    const std::string name = other_name ? "near" : named->second;
    if (config.presets.contains(name)) return name;
    throw bad_option("preset", named->second + ": " + config.file.string() + " has no such preset",
                     "set cache, as in forecast:0.1, and topk instead");
  }
  if (given.contains("from") || given.contains("profile")) return {};
  const auto attention = given.find("attention");
  const std::string name = attention != given.end() && attention->second == "full" ? "exact" : "balanced";
  return config.presets.contains(name) ? name : std::string();
}

/// Returns true if the run has fewer than kLeastPresetSteps steps. `steps` stands in for a number that cannot be read;
/// later checks refuse that number.
bool has_few_steps(const OptionValues& given, const OptionValues& defaults, int64_t steps) {
  for (const OptionValues* values : {&given, &defaults}) {
    const auto sigmas = values->find("sigmas"), count = values->find("steps");
    if (sigmas != values->end()) return std::ssize(split(sigmas->second, ',')) < kLeastPresetSteps;
    if (count != values->end()) return parse_number<int64_t>(count->second).value_or(steps) < kLeastPresetSteps;
  }
  return steps < kLeastPresetSteps;
}

}  // namespace

PresetChoice choose_preset(const ModelConfig& config, const OptionValues& given, int64_t steps) {
  PresetChoice choice{.name = chosen_name(config, given)};
  if (choice.name.empty()) return choice;
  choice.options = config.presets.at(choice.name);
  if (!has_few_steps(given, defaults_of(config, choice).values, steps)) return choice;
  const auto few = config.few_steps.find(choice.name);
  choice.few_steps = few != config.few_steps.end();
  if (choice.few_steps) {
    choice.options = few->second;
  } else {
    choice.cut = std::ranges::any_of(kOverSteps, [&](const char* key) { return choice.options.values.contains(key); });
    keep_blocks_alone(choice);
  }
  return choice;
}

void keep_blocks_alone(PresetChoice& preset) {
  for (const char* key : kOverSteps) preset.options.values.erase(key);
}

YamlOptions defaults_of(const ModelConfig& config, const PresetChoice& preset) {
  YamlOptions options{config.defaults, config.places};
  std::erase_if(options.values,
                [&](const auto& each) { return is_excluded(each.first, each.second, preset.options.values); });
  for (const auto& [key, value] : preset.options.values) {
    options.values[key] = value;
    options.places[key] = preset.options.places.at(key);
  }
  return options;
}

}  // namespace sparsereel::models
