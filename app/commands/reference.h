// `sparsereel reference`: the manual, made of the commands and options there are.
#pragma once

#include <string>

#include "app/options/command_tree.h"

namespace sparsereel::app {

/// `format`: text, or man (for `man -l`, or a folder of manual pages). Throws Error for another.
std::string reference(const CommandInfo& program, const std::string& format);

}  // namespace sparsereel::app
