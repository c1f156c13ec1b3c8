// The program: subcommands, errors on stderr, and exit codes (0 done, 1 failed, 2 bad input, 130 interrupted).
#pragma once

#include <string>
#include <vector>

#include "app/options/command_tree.h"
#include "models/engine/components.h"
#include "models/request/fields.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::app {

/// Additions of another program to this one: model families, loaders of their components, and options.
struct Additions {
  std::vector<models::Family> families;
  models::ComponentLoaders loaders;
  std::vector<models::Field> fields;
};

/// Runs the program and returns its exit code.
int run_program(int argc, char** argv, const Additions& additions = {});

/// Parses a command line whose first word is the program's name. Reads no file and runs no command. Throws Error for
/// words that the command does not take, for values of the wrong kind or out of range, and for contradictions.
void check_command_line(std::vector<std::string> words);

/// Returns every command and option that run_program() parses.
CommandInfo describe_program();

}  // namespace sparsereel::app
