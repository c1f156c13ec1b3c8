// Collects the options in the order of --help, gives each its key in YAML and recipes, and checks their values.
#include "app/options/option_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "app/options/nearest.h"
#include "app/options/option_groups.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app {
namespace {

/// Derives the option's keys from its names. The first long name gives the key; other long names give keys that are
/// also accepted.
void add_keys(OptionSpec& spec) {
  for (const std::string& name : split(spec.names, ',')) {
    const std::string key = key_of_option(name);
    if (key.empty()) continue;
    if (spec.key().empty())
      spec.option.key = key;
    else if (key != spec.key())
      spec.option.other_keys.push_back(key);
  }
}

void add_field(OptionSpec& spec, const models::Field& field) {
  models::Option& option = spec.option;
  option.kind = field.kind;
  option.nothing = field.nothing;
  option.no_effect.insert(option.no_effect.end(), field.no_effect.begin(), field.no_effect.end());
  option.excludes.insert(option.excludes.end(), field.excludes.begin(), field.excludes.end());
  spec.recipe = field.recipe;
  if (!field.choices.empty()) spec.choices = field.choices;
}

/// Returns the value that InServe::usual stands for in this option.
InServe usual_in_serve(const OptionSpec& spec) {
  const bool names_file = spec.kind() == ValueKind::file || spec.kind() == ValueKind::folder;
  const bool makes_picture = models::find_field(spec.key()) != nullptr || spec.recipe == InRecipe::value;
  return makes_picture && !names_file ? InServe::field : InServe::server;
}

std::vector<OptionSpec> make_table() {
  std::vector<OptionSpec> table;
  for (auto& [group, options] : {std::pair{"Prompt", groups::prompt()}, std::pair{"Video", groups::video()},
                                 std::pair{"Sampling", groups::sampling()}, std::pair{"Attention", groups::attention()},
                                 std::pair{"Machine", groups::machine()}, std::pair{"Latents", groups::latents()},
                                 std::pair{"Output and reports", groups::output()}}) {
    for (OptionSpec spec : options) {
      add_keys(spec);
      spec.group = group;
      spec.manual = single_spaced(spec.manual);
      if (const models::Field* field = models::find_field(spec.key())) add_field(spec, *field);
      table.push_back(std::move(spec));
    }
  }
  for (const models::Field& field : models::fields()) {
    if (std::ranges::find(table, field.name, &OptionSpec::key) != table.end()) continue;
    OptionSpec& spec = table.emplace_back(
        OptionSpec{.names = option_name(field.name), .group = "Video", .commands = {Command::bench_pipeline}});
    add_keys(spec);
    add_field(spec, field);
  }
  for (OptionSpec& spec : table)
    if (spec.serve == InServe::usual) spec.serve = usual_in_serve(spec);
  return table;
}

/// Throws Error if the value is not of the option's kind. `what` names option and value in the error, such as "--crf
/// high".
void check_value(const models::Option& option, const std::string& what, const std::string& value) {
  const std::string help = "see the command's --help";
  const auto require = [&](bool right, const char* needed) {
    if (!right) throw bad_input(what + ": " + needed + " is needed", help);
  };
  switch (option.kind) {
    case ValueKind::file:
      if (!value.empty()) return;
      throw bad_input(what.substr(0, what.size() - 1) + " is empty", "name a file, or leave it out");
    case ValueKind::text:
    case ValueKind::folder:
    case ValueKind::size:  // Settings parse these
      return;
    case ValueKind::loras:
      try {
        models::parse_loras(value);
      } catch (const Error& error) {
        throw bad_input(what.substr(0, what.size() - value.size()) + error.problem(), error.remedy());
      }
      return;
    case ValueKind::seed:
      if (value == kRandomSeed) return;
      return require(parse_number<int64_t>(value) || parse_number<uint64_t>(value), "a whole number, or random,");
    case ValueKind::whole:
      return require(parse_number<int64_t>(value) || parse_number<uint64_t>(value), "a whole number");
    case ValueKind::number: {
      const auto number = parse_number<double>(value);
      return require(number && std::isfinite(*number), "a number");
    }
    case ValueKind::numbers:
      for (const std::string& each : split(value, ','))
        require(parse_number<double>(each).has_value(), "a list of numbers");
      return;
    case ValueKind::flag:
      return require_choice(what, value, {"true", "false", "on", "off", "yes", "no"}, help);
    case ValueKind::choice: {
      const OptionSpec& spec = *find_option(option.key);
      if (is_choice(value, spec.more_choices)) return;
      return require_choice(what, value, spec.choices, help);
    }
  }
}

std::string remedy_of_unknown_key(const std::string& key) {
  std::vector<std::string> keys;
  for (const OptionSpec& spec : option_table()) keys.push_back(spec.key());
  return did_you_mean(key, keys, "keys are the long option names of 'sparsereel generate --help-all' with _ for -");
}

}  // namespace

RowFile row_file(const OptionSpec& option) {
  if (option.written) return RowFile::in_the_output;
  if (option.quoted) return RowFile::beside_the_set;
  return option.kind() == ValueKind::file ? RowFile::from_the_set : RowFile::anywhere;
}

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = make_table();
  return table;
}

const OptionSpec* find_option(std::string_view key) {
  if (key.empty()) return nullptr;  // key_of_option() makes an empty key of short names
  const auto found = std::ranges::find_if(option_table(), [&](const OptionSpec& spec) {
    return spec.key() == key || std::ranges::count(spec.option.other_keys, key) > 0;
  });
  return found == option_table().end() ? nullptr : &*found;
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

bool is_request_field(const OptionSpec& option) {
  return option.serve == InServe::field || option.serve == InServe::request;
}

bool takes(Command command, const OptionSpec& option) {
  if (command == Command::generate) return true;
  if (command == Command::batch) return option.scope != Scope::one_video;
  if (command == Command::serve)
    return option.scope != Scope::one_video && (option.serve == InServe::field || option.serve == InServe::server);
  return std::find(option.commands.begin(), option.commands.end(), command) != option.commands.end();
}

const models::OptionList& program_options() {
  static const models::OptionList list = [] {
    std::vector<models::Option> all;
    std::ranges::transform(option_table(), std::back_inserter(all), &OptionSpec::option);
    return models::OptionList(std::move(all),
                              {.name = option_name, .check = check_value, .unknown = remedy_of_unknown_key});
  }();
  return list;
}

}  // namespace sparsereel::app
