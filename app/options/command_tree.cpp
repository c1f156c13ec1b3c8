// Reads CLI11's tree, prints its help and suggests corrections for wrong words.
#include "app/options/command_tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "app/called_program.h"
#include "app/jobs/report.h"
#include "app/options/nearest.h"
#include "hilbert/read_text.h"
#include "models/files/config_fields.h"

namespace sparsereel::app {
namespace {

constexpr size_t kColumns = 100;  // the longest line of text
constexpr size_t kIndent = 30;    // column where the explanations begin

OptionInfo describe_option(const CLI::Option& option) {
  OptionInfo info;
  info.positional = option.get_positional();
  if (info.positional) info.names = {option.get_name(true)};
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) info.value = option.get_type_name();
  info.takes_next = option.get_items_expected_min() > 0;
  // The type name of an option may list its choices, which are words or numbers: "auto,on,off". A list with capitals
  // only, such as "B,H,N,D", describes the form of the value.
  const bool listed = info.value.find(',') != std::string::npos &&
                      std::any_of(info.value.begin(), info.value.end(),
                                  [](unsigned char c) { return std::islower(c) || std::isdigit(c); });
  if (listed) {
    info.choices = split(info.value, ',');
    info.value = kWord;
  }
  const OptionText text = unpacked(option.get_description());
  info.help = text.help;
  info.manual = text.manual;
  info.example = text.example;
  info.in_help = text.in_help;
  info.group = option.get_group();
  return info;
}

std::string path_of(const CLI::App& app) {
  if (app.get_parent() == nullptr) return {};
  const std::string above = path_of(*app.get_parent());
  return above + (above.empty() ? "" : " ") + app.get_name();
}

/// Returns lines such as "  -s, --seed N                seed of the noise".
std::string row(const std::string& term, const std::string& explanation) {
  const std::string start = "  " + term;
  if (start.size() < kIndent) return wrapped(explanation, kIndent, start);
  if (start.size() + 2 + explanation.size() <= kColumns) return start + "  " + explanation + "\n";
  return start + "\n" + wrapped(explanation, kIndent);
}

std::string with_choices(const OptionInfo& option) {
  std::string text = as_called(option.help);
  for (size_t i = 0; i < option.choices.size(); ++i)
    text += (i == 0 ? " [" : ", ") + option.choices[i] + (i + 1 == option.choices.size() ? "]" : "");
  return text;
}

/// Returns the left column of a row, such as "-s, --seed N".
std::string term_of(const std::vector<OptionInfo>& alike, HelpLevel level) {
  std::string term;
  for (const OptionInfo& option : alike) {
    for (const std::string& name : option.names) {
      term += (term.empty() ? "" : ", ") + name;
      if (level == HelpLevel::usual && name.starts_with("--")) break;
    }
  }
  if (term.starts_with("--")) term.insert(0, "    ");
  return alike.front().value.empty() ? term : term + " " + alike.front().value;
}

bool is_shown(const OptionInfo& option, HelpLevel level) {
  return !option.positional && (level == HelpLevel::all || option.in_help == InHelp::everywhere);
}

/// Returns the rows under a heading; each is a list of options. In --help, options with the same explanation share a
/// row.
std::vector<std::vector<OptionInfo>> rows_of(const CommandInfo& command, const std::string& group, HelpLevel level) {
  std::vector<std::vector<OptionInfo>> rows;
  for (const OptionInfo& option : command.options) {
    if (!is_shown(option, level) || option.group != group) continue;
    if (rows.empty() || level == HelpLevel::all || rows.back().front().help != option.help) rows.emplace_back();
    rows.back().push_back(option);
  }
  return rows;
}

/// Returns the headings in the order of their first options; the headings kResearch and kOtherOptions come last.
std::vector<std::string> groups_of(const CommandInfo& command, HelpLevel level) {
  std::vector<std::string> groups;
  for (const OptionInfo& option : command.options)
    if (is_shown(option, level) && std::ranges::find(groups, option.group) == groups.end())
      groups.push_back(option.group);
  for (const char* last : {kResearch, kOtherOptions})
    std::stable_partition(groups.begin(), groups.end(), [&](const std::string& group) { return group != last; });
  return groups;
}

/// Returns the last line of the help, which says where to find what the help does not show.
std::string where_to_read_on(const CommandInfo& command, HelpLevel level) {
  const std::string program = called_program();
  const std::string manual = "'" + program + " reference' explains";
  if (level == HelpLevel::all) return manual + " every command, option and file.\n";
  return "'" + program + (command.path.empty() ? "" : " " + command.path) + " --help-all' lists all; " + manual +
         " them.\n";
}

}  // namespace

std::string wrapped(const std::string& text, size_t indent, std::string line) {
  std::string lines;
  line.resize(std::max(line.size(), indent), ' ');
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() > indent && line.size() + word.size() + 1 > kColumns) {
      lines += line + "\n";
      line.assign(indent, ' ');
    }
    line += (line.size() > indent ? " " : "") + word;
  }
  return lines + line + "\n";
}

CommandInfo describe(const CLI::App& app) {
  CommandInfo info{
      .path = path_of(app), .help = app.get_description(), .example = app.get_footer(), .options = {}, .commands = {}};
  for (const CLI::Option* option : app.get_options()) info.options.push_back(describe_option(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    info.commands.push_back(describe(*command));
  return info;
}

std::vector<const CommandInfo*> all_commands(const CommandInfo& program) {
  std::vector<const CommandInfo*> all = {&program};
  for (const CommandInfo& command : program.commands) {
    const auto below = all_commands(command);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::string help_text(const CommandInfo& command, HelpLevel level) {
  std::string text = command.help + "\n\nusage: sparsereel" + (command.path.empty() ? "" : " " + command.path);
  for (const OptionInfo& option : command.options)
    if (option.positional) text += " " + option.names.front();
  text += command.commands.empty() ? " [options]\n" : " COMMAND [options]\n";
  if (!command.example.empty()) text += "e.g.   " + command_as_called(command.example) + "\n";
  if (!command.commands.empty()) text += "\nCommands\n";
  for (const CommandInfo& below : command.commands) text += row(below.name(), below.help);
  for (const OptionInfo& option : command.options)
    if (option.positional) text += row(option.names.front(), with_choices(option));
  for (const std::string& group : groups_of(command, level)) {
    text += "\n" + group + "\n";
    for (const auto& alike : rows_of(command, group, level))
      text += row(term_of(alike, level), with_choices(alike.front()));
  }
  return text + "\n" + where_to_read_on(command, level);
}

std::string suggest(const CommandInfo& command, const std::string& word, const std::string& otherwise) {
  const std::string given = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const CommandInfo& below : command.commands) known.push_back(below.name());
  if (given.starts_with("-")) known.clear();
  for (const OptionInfo& option : command.options)
    for (const std::string& name : option.names)
      if (name.starts_with("--") && given.starts_with("--")) known.push_back(name);
  return did_you_mean(given, known, otherwise);
}

std::pair<const CLI::App*, size_t> named_command(const CLI::App& program) {
  const CLI::App* command = &program;
  size_t depth = 0;
  for (; !command->get_subcommands().empty(); ++depth) command = command->get_subcommands().front();
  return {command, depth};
}

std::string unused_words(const CLI::App& program) {
  const CLI::App& command = *named_command(program).first;
  std::string text = describe(command).path;
  text = (text.empty() ? "sparsereel" : text) + " does not take";
  for (const std::string& word : command.remaining()) text += " " + shell_quoted(word);
  return text;
}

namespace {

/// Returns true if the command needs a subcommand, but the command line names none.
bool lacks_command(const CLI::App& command) {
  return command.get_require_subcommand_min() > 0 && command.get_subcommands().empty();
}

/// Returns a remedy that lists the subcommands: "use attention, pipeline or plot".
std::string commands_below(const CommandInfo& info) {
  std::vector<std::string> names;
  for (const CommandInfo& below : info.commands) names.push_back(below.name());
  return "use " + models::list_of(names);
}

}  // namespace

std::string missing_command(const CLI::App& program, const std::vector<std::string>& words) {
  const auto [command, depth] = named_command(program);
  if (!lacks_command(*command)) return {};
  const std::string path = describe(*command).path;
  if (depth >= words.size()) return (path.empty() ? "sparsereel" : path) + " needs a command";
  if (words[depth].starts_with("-")) return unused_words(program);
  return shell_quoted(words[depth]) + " is not a command" + (path.empty() ? "" : " of " + path);
}

std::string command_line_remedy(const CLI::App& program, const std::vector<std::string>& words) {
  const auto [command, depth] = named_command(program);
  const CommandInfo info = describe(*command);
  const std::vector<std::string> unused = command->remaining();
  // If a command is missing, the word in its place was probably meant as a command.
  const bool lacks = lacks_command(*command), missing = lacks && depth < words.size();
  if (!unused.empty() && !unused.front().starts_with("-") && command->get_option_no_throw("--prompt") != nullptr)
    return "a prompt follows -p, in quotes: -p \"a red circle\"";
  const std::string wrong = !unused.empty() ? unused.front() : missing ? words[depth] : "";
  const std::string help = "see 'sparsereel" + (info.path.empty() ? "" : " " + info.path) + " --help'";
  return suggest(info, wrong, (lacks ? commands_below(info) + "; " : "") + help);
}

}  // namespace sparsereel::app
