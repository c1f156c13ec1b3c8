// Remembers how the user called this program, so that the commands in messages can be copied.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// Stores the command line. Call it once, before anything is printed.
void remember_call(int argc, const char* const* argv);

/// Returns the words after the program's name.
const std::vector<std::string>& called_words();

/// Returns the program's name as the user called it, quoted if the shell needs that: "build/sparsereel", or
/// "sparsereel" if the shell found it in the PATH.
std::string called_program();

/// Returns the text with called_program() in place of "sparsereel" in each quoted command, such as 'sparsereel doctor'.
std::string as_called(std::string text);

/// Returns the command line with called_program() in place of "sparsereel": at its beginning and in command
/// substitutions.
std::string command_as_called(std::string command);

}  // namespace sparsereel::app
