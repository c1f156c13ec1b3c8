// Describes the commands and their options as plain data, which is read from CLI11's tree of commands. Help, completion
// and reference are made from these data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/options/option_text.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sparsereel::app {

struct OptionInfo {
  std::vector<std::string> names;  // "-s", "--seed"; a positional argument has one name
  std::string value;               // "N", "FILE"; empty for a flag
  std::vector<std::string> choices;
  std::string help;     // see OptionText
  std::string manual;   // see OptionText
  std::string example;  // see OptionText
  InHelp in_help = InHelp::everywhere;
  std::string group;
  bool positional = false;
  bool takes_next = false;  // the next word is the option's value, even if it looks like an option

  bool is_file() const { return value == "FILE"; }
  bool is_folder() const { return value == "DIR" || value == "FOLDER"; }
};

struct CommandInfo {
  std::string path;  // "bench pipeline"; empty for the program itself
  std::string help;
  std::string example;  // a command line to begin with; may be empty
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};

CommandInfo describe(const CLI::App& app);

/// Returns every command: the program first, each command before its subcommands.
std::vector<const CommandInfo*> all_commands(const CommandInfo& program);

/// The placeholder of options that take one of several words. The help lists these words after the explanation.
constexpr const char* kWord = "WORD";

/// Appends the words of `text` to `line`, and breaks the text into lines of at most 100 columns. Indents the text by
/// `indent` columns.
std::string wrapped(const std::string& text, size_t indent, std::string line = {});

enum class HelpLevel {
  usual,  // --help: the options that most people use, each by its first long name
  all,    // --help-all: every option with all of its names
};

/// Returns the text of --help or --help-all: at most 100 columns, and a heading per group.
std::string help_text(const CommandInfo& command, HelpLevel level);

/// Returns a remedy for `word`, which `command` does not know: "did you mean --steps? see ...". Returns `otherwise` if
/// no name is near it.
std::string suggest(const CommandInfo& command, const std::string& word, const std::string& otherwise);

/// Returns the innermost command that the command line names, and how many words name it.
std::pair<const CLI::App*, size_t> named_command(const CLI::App& program);

/// Lists the words that the command does not take: "decode does not take --count 2".
std::string unused_words(const CLI::App& program);

/// Returns an error if the command line lacks a command: "speed is not a command of bench" or "bench needs a command".
/// If an option stands in place of the command, returns unused_words(). Returns an empty string if no command is
/// missing.
std::string missing_command(const CLI::App& program, const std::vector<std::string>& words);

/// Returns the remedy if CLI11 refuses the command line `words`.
std::string command_line_remedy(const CLI::App& program, const std::vector<std::string>& words);

}  // namespace sparsereel::app
