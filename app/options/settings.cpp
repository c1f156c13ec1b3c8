// Makes the list of options from the option table. Errors about values point to --help.
#include "app/options/settings.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "app/options/nearest.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app {
namespace {

/// Throws Error if the value is not of the option's kind; `what` names the value in the error.
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
