// Describes the options that a request may set, and finds the files of the LoRAs and profiles that a request names.
#include "app/serve/fields.h"

#include <algorithm>
#include <cmath>

#include "app/options/nearest.h"
#include "app/serve/body.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/request/effects.h"
#include "models/request/fields.h"

namespace sparsereel::app::serve {
namespace {

namespace fs = std::filesystem;

/// Returns the folder's files that have one of these endings. The keys are their names without the ending.
std::map<std::string, fs::path> files_by_name(const fs::path& folder, const std::vector<std::string>& endings) {
  std::map<std::string, fs::path> files;
  std::error_code ignored;
  if (folder.empty()) return files;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored) && std::ranges::count(endings, entry.path().extension().string()) > 0)
      files.emplace(entry.path().stem().string(), entry.path());
  return files;
}

std::map<std::string, fs::path> files_of_field(const std::string& key, const NamedFolders& folders) {
  if (key == "lora") return files_by_name(folders.loras, {".safetensors"});
  if (key == "profile") return files_by_name(folders.profiles, {".yaml", ".yml"});
  return {};
}

std::string file_named(const std::string& key, const std::string& name, const NamedFolders& folders) {
  const std::map<std::string, fs::path> files = files_of_field(key, folders);
  if (const auto found = files.find(name); found != files.end()) return found->second.string();
  std::vector<std::string> names;
  for (const auto& [each, file] : files) names.push_back(each);
  throw bad_option(
      key, "'" + name + "' is not a name that this server offers",
      names.empty() ? "start the server with --" + key + "-dir" : did_you_mean(name, names, "see /v1/options"));
}

std::string type_of_field(const OptionSpec& option) {
  switch (option.kind()) {
    case ValueKind::whole:
    case ValueKind::seed:
      return "integer";
    case ValueKind::number:
      return "number";
    case ValueKind::numbers:
    case ValueKind::loras:
      return "list";
    case ValueKind::flag:
      return "boolean";
    case ValueKind::size:
      return "size";
    case ValueKind::choice:
    case ValueKind::file:
      return "choice";
    default:
      return option.choices.empty() ? "string" : "choice";
  }
}

const char* group_of_field(const OptionSpec& option) {
  if (option.in_help == InHelp::research) return "research";
  return option.in_help == InHelp::all ? "advanced" : "common";
}

/// Converts the text of an option to the JSON type of its field.
nlohmann::json typed(const OptionSpec& option, const std::string& text) {
  const std::string type = type_of_field(option);
  if (type == "integer")
    if (const auto number = parse_number<int64_t>(text)) return *number;
  if (type == "number")
    if (const auto number = parse_number<double>(text)) return *number;
  if (type == "boolean") return parse_flag(text).value_or(false);
  return text;
}

nlohmann::json describe_field(const OptionSpec& option, const Settings& settings, const nlohmann::json& defaults,
                              const NamedFolders& folders) {
  nlohmann::json field = {{"name", option.key()},
                          {"type", type_of_field(option)},
                          {"group", group_of_field(option)},
                          {"help", option.help}};
  std::vector<std::string> choices = option.choices;
  if (option.key() == "preset") choices = settings.preset_names();
  for (const auto& [name, file] : files_of_field(option.key(), folders)) choices.push_back(name);
  if (!choices.empty() || field["type"] == "choice") field["choices"] = choices;
  const bool is_named = option.kind() == ValueKind::file || option.kind() == ValueKind::loras;
  if (option.key() == "preset" && !settings.preset().name.empty())
    field["default"] = settings.preset().name;
  else if (defaults.contains(option.key()) && !is_named && option.key() != "prompt")
    field["default"] = defaults.at(option.key());
  else if (const auto own = settings.text(option.key()); own && !is_named)
    field["default"] = typed(option, *own);
  if (const models::Field* known = models::find_field(option.key()); known != nullptr && known->range) {
    field["minimum"] = known->range->least;
    if (std::isfinite(known->range->most)) field["maximum"] = known->range->most;
  }
  return field;
}

}  // namespace

std::map<std::string, std::string> with_files(std::map<std::string, std::string> values, const NamedFolders& folders) {
  if (const auto profile = values.find("profile"); profile != values.end())
    profile->second = file_named("profile", profile->second, folders);
  const auto loras = values.find("lora");
  if (loras == values.end()) return values;
  std::string all;
  for (const std::string& each : split(loras->second, ',')) {
    const size_t end = std::min(each.find_first_of(":@"), each.size());  // a LoRA may be given as NAME@high:0.8
    all += (all.empty() ? "" : ",") + file_named("lora", each.substr(0, end), folders) + each.substr(end);
  }
  loras->second = all;
  return values;
}

nlohmann::json list_fields(const Settings& settings, const nlohmann::json& defaults, const NamedFolders& folders,
                           const models::ModelSpec& spec) {
  const std::set<std::string> idle = models::options_without_effect(
      settings.options(), models::no_effect_causes(models::kDecidedByModel, {.settings = &settings, .model = &spec}));
  nlohmann::json fields = nlohmann::json::array();
  for (const OptionSpec& option : option_table()) {
    if (!is_request_field(option) || idle.contains(option.key())) continue;
    if ((option.key() == "lora" && folders.loras.empty()) || (option.key() == "profile" && folders.profiles.empty()))
      continue;
    fields.push_back(describe_field(option, settings, defaults, folders));
  }
  return {{"object", "list"}, {"data", fields}};
}

}  // namespace sparsereel::app::serve
