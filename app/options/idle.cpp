// Finds the options without effect in the option table.
#include "app/options/idle.h"

#include <algorithm>

namespace sparsereel::app {
namespace {

bool asks_for_something(const Settings& settings, const OptionSpec& option) {
  if (option.kind == ValueKind::flag) return settings.flag(option.key);
  const std::string value = settings.text(option.key, "");
  return !value.empty() && value != option.nothing;
}

/// A stronger choice overrides the option; an equal or weaker one means that the user expects what will not come.
bool is_overridden(const Settings& settings, const Setting& idle, const IdleCause& cause) {
  const Setting* by = settings.find(cause.beside);
  return idle.source <= Source::profile || (by != nullptr && by->source > idle.source);
}

}  // namespace

std::vector<std::string> idle_warnings(const Settings& settings, const std::vector<IdleCause>& causes) {
  std::vector<std::string> warnings;
  for (const OptionSpec& option : option_table()) {
    const auto cause = std::find_if(causes.begin(), causes.end(), [&](const IdleCause& each) {
      return !each.why.empty() && is_idle(option, each.idle);
    });
    const Setting* setting = settings.find(option.key);
    if (cause == causes.end() || setting == nullptr || !asks_for_something(settings, option)) continue;
    if (!is_overridden(settings, *setting, *cause))
      warnings.push_back(settings.describe(option.key) + " has no effect " + cause->why);
  }
  return warnings;
}

std::set<std::string> idle_options(const std::vector<IdleCause>& causes) {
  std::set<std::string> keys;
  for (const OptionSpec& option : option_table())
    for (const IdleCause& cause : causes)
      if (!cause.why.empty() && is_idle(option, cause.idle)) keys.insert(option.key);
  return keys;
}

}  // namespace sparsereel::app
