// Changes the options of the user's command line and quotes it again for a shell.
#include "app/options/choice_commands.h"

#include <algorithm>

#include "app/called_program.h"
#include "app/jobs/report.h"
#include "app/options/option_table.h"
#include "app/terminal.h"
#include "hilbert/read_text.h"

namespace sparsereel::app {
namespace {

using Words = std::vector<std::string>;

/// Converts "--text_encoder" to "--text-encoder". Short names stay as they are.
std::string usual_option(std::string word) {
  if (word.starts_with("--")) std::replace(word.begin(), word.end(), '_', '-');
  return word;
}

bool is_named_by(const OptionSpec& option, const std::string& word) {
  const std::vector<std::string> names = split(option.names, ',');
  return std::ranges::count(names, usual_option(word)) > 0;
}

/// Replaces the option's value wherever `words` has the option; if `value` is null, removes the option. Returns true if
/// the option was there.
bool replace_option(Words& words, const OptionSpec& option, const std::string* value) {
  bool replaced = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t end = words[i].find('=');
    const bool joined = end != std::string::npos && is_named_by(option, words[i].substr(0, end));
    if (!joined && !(is_named_by(option, words[i]) && i + 1 < words.size())) continue;
    replaced = true;
    if (value == nullptr) {
      const auto begin = words.begin() + static_cast<ptrdiff_t>(i);
      words.erase(begin, begin + (joined ? 1 : 2));
      --i;
    } else if (joined) {
      words[i] = words[i].substr(0, end + 1) + *value;
    } else {
      words[++i] = *value;
    }
  }
  return replaced;
}

bool excludes(const OptionSpec& spec, const std::string& key) {
  return std::ranges::any_of(spec.option.excludes, [&](const auto& each) { return each.other == key; });
}

}  // namespace

std::string command_with(Words words, const OptionValues& values) {
  for (const auto& [key, value] : values)
    for (const OptionSpec& option : option_table())
      if (excludes(option, key)) replace_option(words, option, nullptr);
  for (const auto& [key, value] : values) {
    const OptionSpec* option = find_option(key);
    if (option != nullptr && replace_option(words, *option, &value)) continue;
    words.push_back(key == "model" ? "-m" : option_name(key));
    words.push_back(value);
  }
  std::string command = called_program();
  for (const std::string& word : words) command += " " + shell_quoted(word);
  return command;
}

void print_choices(std::ostream& stream, const std::vector<ErrorChoice>& choices, const Words& words) {
  const std::string* group = nullptr;
  for (const ErrorChoice& choice : choices) {
    if (!choice.group.empty() && (group == nullptr || *group != choice.group)) stream << one_line(choice.group) << "\n";
    group = &choice.group;
    stream << "  " << one_line(choice.title) << "\n    " << one_line(command_with(words, choice.values)) << "\n";
  }
}

nlohmann::json choices_report(const std::vector<ErrorChoice>& choices, const Words& words) {
  nlohmann::json all = nlohmann::json::array();
  for (const ErrorChoice& choice : choices)
    all.push_back({{"group", choice.group}, {"title", choice.title}, {"command", command_with(words, choice.values)}});
  return all;
}

}  // namespace sparsereel::app
