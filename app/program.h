// Runs the program: its subcommands, errors on stderr, and exit codes (0 done, 1 failed, 2 bad input, 130 interrupted).
#pragma once

#include <vector>

#include "app/commands/command_line.h"
#include "models/engine/components.h"
#include "models/request/fields.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::app {

/// The additions of a program that embeds this one: model families, loaders of their components, and options.
struct Additions {
  std::vector<models::Family> families;
  models::ComponentLoaders loaders;
  std::vector<models::Field> fields;
};

/// Runs the program and returns its exit code.
int run_program(int argc, char** argv, const Additions& additions = {});

/// Adds every command and its options. `line` must outlive the parsing.
void add_commands(CLI::App& program, CommandLine& line);

/// Parses the command line; CLI11 then runs the command that it names. `program` has the commands of add_commands(),
/// and argv[0] is the program's name. Throws Error for words that the command does not take and for values of the wrong
/// kind. Errors that the command throws pass through.
void parse_command_line(CLI::App& program, CommandLine& line, int argc, char** argv);

}  // namespace sparsereel::app
