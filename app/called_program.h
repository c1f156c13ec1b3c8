// How the user called this program, so that the commands in messages can be copied.
#pragma once

#include <string>
#include <vector>

namespace sparsereel::app {

/// Keeps the command line. Call it once, before anything is printed.
void remember_call(int argc, const char* const* argv);

/// The words behind the program's name.
const std::vector<std::string>& called_words();

/// The program's name as a shell takes it: "build/sparsereel", "sparsereel" from the PATH. Quoted where it has spaces.
std::string called_program();

/// `text` with the quoted commands in it ('sparsereel doctor') named as the program was called.
std::string as_called(std::string text);

/// A whole command line that begins with "sparsereel", or has it in a substitution, named likewise.
std::string command_as_called(std::string command);

}  // namespace sparsereel::app
