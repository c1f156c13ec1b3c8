// Merges option values by the strength of their sources, and reads them as numbers and flags.
#include "models/request/settings.h"

#include <algorithm>
#include <utility>

#include "hilbert/read_text.h"
#include "models/request/distilled.h"
#include "models/request/frame_area.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

Place place_of(const Places& places, const std::string& key) {
  const auto place = places.find(key);
  return place == places.end() ? Place{} : place->second;
}

/// Accepts the names that stable-diffusion.cpp gives to the transformers. Its high_noise_diffusion_model is our first
/// transformer. Its diffusion_model is our second transformer if high_noise_diffusion_model is also given, and our only
/// transformer if it is not.
void expand_experts(std::map<std::string, Setting>& added) {
  const auto move = [&](const char* from, const char* to) {
    const auto given = added.find(from);
    if (given == added.end()) return;
    added.insert_or_assign(to, given->second);
    added.erase(given);
  };
  move("diffusion_model", added.contains("high_noise_diffusion_model") ? "transformer_2" : "transformer");
  move("high_noise_diffusion_model", "transformer");
}

/// Splits "256x128" or "256*128" into "256" and "128". The second is empty for any other text.
std::pair<std::string, std::string> width_and_height(const std::string& size) {
  const size_t cross = size.find_first_of("x*");  // some programs write 1280*720
  return {size.substr(0, cross), cross == std::string::npos ? "" : size.substr(cross + 1)};
}

/// Returns how many characters of the file's path the value names: the whole path, or the path of a folder that holds
/// the file. Returns 0 if the value names neither.
size_t named_length(const Option& option, const std::string& value, const fs::path& file) {
  std::error_code ignored;
  const auto whole = [&](const fs::path& path) {
    return (fs::absolute(path, ignored) / "").lexically_normal().string();
  };
  const std::string blamed = whole(file);
  for (const fs::path& each : files_in(option.kind, value))
    if (whole(each) == blamed) return blamed.size();
  if (value.empty() || (option.kind != ValueKind::folder && !fs::is_directory(value, ignored))) return 0;
  const std::string folder = whole(value);
  return blamed.starts_with(folder) ? folder.size() : 0;
}

}  // namespace

/// Returns "--steps", "clip.mp4: steps" or "my.yaml:3:8: steps".
std::string Settings::label(const std::string& key, Source source, const std::string& file, Mark mark) const {
  if (source == Source::command_line) return options_->words().name(key);
  std::string position;
  for (const int64_t number : {mark.line, mark.column})
    if (number > 0) position += ":" + std::to_string(number);
  return file + position + ": " + key;
}

/// Returns the label of the choice's option, followed by the choice's value if it has one.
std::string Settings::label(const Choice& choice, const Setting& setting) const {
  return label(choice.name, setting.source, setting.file, setting.mark) +
         (choice.value.empty() ? "" : " " + choice.value);
}

/// Throws Error if there is no such option, or the value does not fit the option's kind.
const Option& Settings::checked_option(const std::string& given, const std::string& value, Source source,
                                       const std::string& file, const Place& place) const {
  const Option* option = options_->find(given);
  if (option == nullptr)
    throw bad_input(label("the key " + given, source, file, place.key) + " is unknown",
                    options_->words().unknown(given));
  options_->words().check(*option, label(given, source, file, place.value) + " " + value, value);
  return *option;
}

/// Throws Error if the values of one source hold two choices that exclude each other.
void Settings::refuse_both(const std::map<std::string, Setting>& added) const {
  const auto made = [&](const Choice& choice) {
    const auto found = added.find(choice.name);
    return found != added.end() && choice.is(choice.name, found->second.value) ? &found->second : nullptr;
  };
  for (const auto& [first, second] : options_->exclusions()) {
    const Setting *one = made(first), *other = made(second);
    if (one != nullptr && other != nullptr)
      throw bad_input(label(first, *one) + " and " + label(second, *other) + " exclude each other", "give one of them");
  }
}

/// Replaces "256x128" by width 256 and height 128. An area such as 720p stays.
void Settings::expand_size(std::map<std::string, Setting>& added) const {
  const auto place = added.find("size");
  if (place == added.end()) return;
  const Setting size = place->second;
  const auto [width, height] = width_and_height(size.value);
  if (find_frame_area(size.value)) return;
  if (!parse_number<int64_t>(width) || !parse_number<int64_t>(height))
    throw bad_input(label("size", size.source, size.file, size.mark) + " " + size.value +
                        " is neither of the form WxH nor an area such as 720p",
                    "write for example 720x480, or 480p for an image's shape");
  added.erase(place);
  added["width"] = {width, size.source, size.file, size.mark};
  added["height"] = {height, size.source, size.file, size.mark};
}

void Settings::add(Source source, const std::map<std::string, std::string>& values, const std::string& file,
                   const Places& places) {
  std::map<std::string, Setting> added;
  for (const auto& [given, value] : values) {
    const Place place = place_of(places, given);
    const Option& option = checked_option(given, value, source, file, place);
    if (!added.emplace(option.key, Setting{value, source, file, place.value}).second)
      throw bad_input(label(given, source, file, place.key) + " is given twice, under two names", "give it once");
  }
  refuse_both(added);
  expand_size(added);
  expand_experts(added);
  for (const auto& [key, setting] : added) {
    if (stronger(key, setting.value, source)) continue;
    values_[key] = setting;
    for (const Choice& other : excluded_by(options_->exclusions(), key, setting.value)) {
      const Setting* weaker = find(other.name);
      if (weaker != nullptr && other.is(other.name, weaker->value)) values_.erase(other.name);
    }
  }
}

void Settings::add_model_config(PresetUse use, const std::string& named) {
  remove(Source::matched_config);
  remove(Source::distilled);
  const YamlOptions distilled = distilled_options(*config_, above_model_config(), options_->words());
  add(Source::distilled, distilled.values, config_->file.string(), distilled.places);
  std::map<std::string, std::string> given;
  for (const auto& [key, setting] : values_) given[key] = setting.value;
  if (!named.empty()) given["preset"] = named;
  if (use != PresetUse::whole) given.erase("profile");  // in these uses, a profile does not replace the preset
  preset_ = choose_preset(*config_, given, fallbacks_.steps);
  if (use == PresetUse::blocks_alone || (use == PresetUse::whole_where_named && !given.contains("preset")))
    keep_blocks_alone(preset_);
  const YamlOptions options = defaults_of(*config_, preset_);
  add(Source::matched_config, options.values, config_->file.string(), options.places);
}

std::string Settings::distilled_warning() const {
  return models::distilled_warning(*config_, above_model_config(), options_->words());
}

/// Returns the values of sources stronger than the model's file, by option name.
std::map<std::string, std::string> Settings::above_model_config() const {
  std::map<std::string, std::string> given;
  for (const auto& [key, setting] : values_)
    if (setting.source > Source::distilled) given[key] = setting.value;
  return given;
}

std::vector<std::string> Settings::preset_names() const {
  std::vector<std::string> names;
  if (config_)
    for (const auto& [name, options] : config_->presets) names.push_back(name);
  return names;
}

/// Returns true if a source stronger than `source` gives `key`, or gives an option's value that excludes this value of
/// `key`.
bool Settings::stronger(const std::string& key, const std::string& value, Source source) const {
  std::vector<Choice> choices = excluded_by(options_->exclusions(), key, value);
  choices.push_back({key});
  return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) {
    const Setting* setting = find(choice.name);
    return setting != nullptr && setting->source > source && choice.is(choice.name, setting->value);
  });
}

const Setting* Settings::find(const std::string& key) const {
  const auto place = values_.find(key);
  return place == values_.end() ? nullptr : &place->second;
}

std::vector<fs::path> files_in(ValueKind kind, const std::string& value) {
  std::vector<fs::path> files;
  if (kind == ValueKind::file && !value.empty()) files.emplace_back(value);
  if (kind == ValueKind::loras)
    for (const LoraChoice& lora : parse_loras(value)) files.push_back(lora.file);
  return files;
}

std::string Settings::describe(const std::string& key) const {
  const Setting* setting = find(key);
  if (setting == nullptr) return label(key, Source::command_line, {});
  if (setting->source == Source::row) return key + " " + setting->value;
  return label(key, setting->source, setting->file, setting->mark) + " " + setting->value;
}

const Setting* Settings::that_names(const std::string& file, std::string& key) const {
  const Setting* found = nullptr;
  size_t longest = 0;
  for (const auto& [each, setting] : values_) {
    const size_t length = named_length(*options_->find(each), setting.value, file);
    if (length == 0 || length < longest) continue;
    found = length == longest ? nullptr : &setting;
    longest = length;
    key = each;
  }
  return found;
}

Error Settings::with_place(const Error& error) const {
  return placed(error).with_choices(error.choices());
}

Error Settings::placed(const Error& error) const {
  if (const Option* option = error.field().empty() ? nullptr : options_->find(error.field())) {
    const Setting* setting = find(option->key);
    const std::string own_name = options_->words().name(option->key);
    const bool in_list = std::find(lists_.begin(), lists_.end(), own_name) != lists_.end();
    if (setting == nullptr || in_list) return {error.kind(), own_name + " " + error.problem(), error.remedy()};
    const std::string name = label(option->key, setting->source, setting->file, setting->mark);
    return {error.kind(), name + " " + error.problem(), error.remedy(), {.file = setting->file}};
  }
  if (error.file().empty() || error.kind() != ErrorKind::bad_input) return error;
  std::string key;
  const Setting* setting = that_names(error.file(), key);
  if (setting == nullptr || setting->source == Source::command_line) return error;
  return {error.kind(),
          label(key, setting->source, setting->file, setting->mark) + ": " + error.what(),
          error.remedy(),
          {.file = setting->file}};
}

std::optional<std::string> Settings::text(const std::string& key) const {
  const Setting* setting = find(key);
  if (setting == nullptr) return std::nullopt;
  return setting->value;
}

std::string Settings::text(const std::string& key, const std::string& fallback) const {
  return text(key).value_or(fallback);
}

std::optional<int64_t> Settings::whole(const std::string& key) const {
  const Setting* setting = find(key);
  if (setting == nullptr) return std::nullopt;
  const auto value = parse_number<int64_t>(setting->value);
  if (!value) throw bad_option(key, setting->value + " is too large", "give a smaller number");
  return value;
}

std::optional<uint64_t> Settings::unsigned_whole(const std::string& key) const {
  const Setting* setting = find(key);
  if (setting == nullptr) return std::nullopt;
  const auto value = parse_number<uint64_t>(setting->value);
  if (!value) throw bad_option(key, setting->value + " is below 0", "give a number from 0 to 18446744073709551615");
  return value;
}

std::optional<double> Settings::number(const std::string& key) const {
  const Setting* setting = find(key);
  if (setting == nullptr) return std::nullopt;
  return parse_number<double>(setting->value);
}

bool Settings::flag(const std::string& key, bool fallback) const {
  const Setting* setting = find(key);
  return setting == nullptr ? fallback : parse_flag(setting->value).value();
}

}  // namespace sparsereel::models
