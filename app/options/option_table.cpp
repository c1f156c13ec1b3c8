// Collects the groups in the order of --help and gives each option its key in YAML and recipes.
#include "app/options/option_table.h"

#include <algorithm>
#include <utility>

#include "app/options/option_groups.h"
#include "hilbert/read_text.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::app {
namespace {

std::string first_key(const std::string& names) {
  for (const std::string& name : split(names, ','))
    if (std::string key = key_of_option(name); !key.empty()) return key;
  return {};
}

void add_field(OptionSpec& option, const models::Field& field) {
  option.kind = field.kind;
  option.recipe = field.recipe;
  option.nothing = field.nothing;
  if (!field.choices.empty()) option.choices = field.choices;
  option.no_effect.insert(option.no_effect.end(), field.no_effect.begin(), field.no_effect.end());
  option.excludes.insert(option.excludes.end(), field.excludes.begin(), field.excludes.end());
}

std::vector<OptionSpec> make_table() {
  std::vector<OptionSpec> table;
  for (auto& [group, options] : {std::pair{"Prompt", groups::prompt()}, std::pair{"Video", groups::video()},
                                 std::pair{"Sampling", groups::sampling()}, std::pair{"Attention", groups::attention()},
                                 std::pair{"Machine", groups::machine()}, std::pair{"Latents", groups::latents()},
                                 std::pair{"Output and reports", groups::output()}}) {
    for (OptionSpec option : options) {
      option.group = group;
      option.key = first_key(option.names);
      option.manual = single_spaced(option.manual);
      if (const models::Field* field = models::find_field(option.key)) add_field(option, *field);
      table.push_back(std::move(option));
    }
  }
  for (const models::Field& field : models::fields()) {
    if (std::ranges::find(table, field.name, &OptionSpec::key) != table.end()) continue;
    add_field(table.emplace_back(OptionSpec{.key = field.name,
                                            .group = "Video",
                                            .names = option_name(field.name),
                                            .commands = {Command::bench_pipeline}}),
              field);
  }
  return table;
}

}  // namespace

RowFile row_file(const OptionSpec& option) {
  if (option.written) return RowFile::in_the_output;
  if (option.quoted) return RowFile::beside_the_set;
  return option.kind == ValueKind::file ? RowFile::from_the_set : RowFile::anywhere;
}

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = make_table();
  return table;
}

const OptionSpec* find_option(std::string_view key) {
  if (key.empty()) return nullptr;  // key_of_option() makes an empty key of short names
  for (const OptionSpec& spec : option_table()) {
    for (const std::string& name : split(spec.names, ','))
      if (key_of_option(name) == key) return &spec;
  }
  return nullptr;
}

std::string key_of_option(std::string name) {
  if (name.size() < 3 || !name.starts_with("--")) return {};
  name.erase(0, 2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

bool is_of_a_preset(const OptionSpec& option) {
  const models::Field* field = models::find_field(option.key);
  return field != nullptr && models::is_of_a_preset(*field);
}

bool has_no_effect(const OptionSpec& option, NoEffect cause) {
  return std::find(option.no_effect.begin(), option.no_effect.end(), cause) != option.no_effect.end();
}

bool takes(Command command, const OptionSpec& option) {
  if (command == Command::generate) return true;
  if (command == Command::batch) return option.scope != Scope::one_video;
  return std::find(option.commands.begin(), option.commands.end(), command) != option.commands.end();
}

}  // namespace sparsereel::app
