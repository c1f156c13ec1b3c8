// The program's commands as data, and a check of command lines that runs no command.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/options/command_tree.h"
#include "app/program.h"

namespace sparsereel::test {

/// Returns every command and option that run_program() parses.
inline app::CommandInfo describe_program() {
  app::RunReport report;
  app::CommandLine line(report);
  CLI::App program;
  app::add_commands(program, line);
  return app::describe(program);
}

/// Parses a command line whose first word is the program's name. Reads no file and runs no command. Throws Error for
/// words that the command does not take, for values of the wrong kind or out of range, and for contradictions.
inline void check_command_line(std::vector<std::string> words) {
  struct Parsed {};
  app::RunReport report;
  app::CommandLine line(report);
  CLI::App program;
  app::add_commands(program, line);
  program.parse_complete_callback([] { throw Parsed(); });  // runs before the commands' callbacks, so no command starts
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  try {
    app::parse_command_line(program, line, static_cast<int>(arguments.size()), arguments.data());
  } catch (const Parsed&) {
  }
  line.settings.add(app::Source::command_line, line.values);
  models::check_ranges(read_request(line.settings));
}

}  // namespace sparsereel::test
