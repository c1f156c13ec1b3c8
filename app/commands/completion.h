// `sparsereel completion`: a shell's completion script, made of the commands and options there are.
#pragma once

#include <string>

#include "app/options/command_tree.h"

namespace sparsereel::app {

/// `shell`: bash, zsh or fish. Throws Error for another.
std::string completion_script(const CommandInfo& program, const std::string& shell);

}  // namespace sparsereel::app
