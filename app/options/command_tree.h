// The commands and their options as plain data, read from CLI11's tree: what help, completion and reference are made
// of.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace sparsereel::app {

struct OptionInfo {
  std::vector<std::string> names;  // "-s", "--seed"; of a positional argument its one name
  std::string value;               // "N", "FILE"; empty for a flag
  std::vector<std::string> choices;
  std::string help;
  std::string group;
  bool positional = false;
  bool takes_next = false;  // the word behind it is its value, whatever that is

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

/// Every command, the program first, each before its own commands.
std::vector<const CommandInfo*> all_commands(const CommandInfo& program);

/// The placeholder of options that take one of a list of words; the words are behind the help's text.
constexpr const char* kWord = "WORD";

/// `line` and then the words of `text` at `indent`, over as many lines of at most 100 columns as it takes.
std::string wrapped(const std::string& text, size_t indent, std::string line = {});

/// What --help prints: at most 100 columns, a heading a group, the first of each option's long names.
std::string help_text(const CommandInfo& command);

/// "did you mean --steps? see ..." for the first word of the command line that `command` could not use; `otherwise`
/// where nothing is near it.
std::string suggest(const CommandInfo& command, const std::string& word, const std::string& otherwise);

/// The innermost command that the command line names, and how many words that takes.
std::pair<const CLI::App*, size_t> named_command(const CLI::App& program);

/// What of the command line its command has no use for: "decode does not take --count 2".
std::string unused_words(const CLI::App& program);

/// "speed is no command of bench", "bench needs a command", where one is missing; what the command does not take where
/// an option stands in its place; else empty.
std::string missing_command(const CLI::App& program, const std::vector<std::string>& words);

/// What to do about a command line of these words that CLI11 refuses.
std::string command_line_remedy(const CLI::App& program, const std::vector<std::string>& words);

}  // namespace sparsereel::app
