// Remembers how the user called this program, so that the commands in messages can be copied.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// Stores the command line. Call it once, before anything is printed.
void remember_call(int argc, const char* const* argv);

/// Returns the words after the program's name.
const std::vector<std::string>& called_words();

/// Returns the program's name as a shell takes it: "build/sparsereel", or "sparsereel" from the PATH. Quoted if it has
/// spaces.
std::string called_program();

/// Replaces the program's name in the quoted commands of `text` ('sparsereel doctor') by called_program().
std::string as_called(std::string text);

/// Replaces the program's name in a whole command line that begins with "sparsereel" or has it in a command
/// substitution.
std::string command_as_called(std::string command);

}  // namespace sparsereel::app
