// Prints the remedies of an error that has several. Each remedy is the user's command with other options. Does not use
// torch.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::app {

using OptionValues = std::vector<std::pair<std::string, std::string>>;  // option keys with their values

/// Returns a command line, quoted for a shell: `words`, in which each option of `values` gets its value. An option that
/// is not there yet is appended. Options that exclude one of `values` are removed. The line begins with the program's
/// name as the user called it.
std::string command_with(std::vector<std::string> words, const OptionValues& values);

/// Prints each choice with its command, under the name of the choice's group. `words` is the user's command line.
void print_choices(std::ostream& stream, const std::vector<ErrorChoice>& choices,
                   const std::vector<std::string>& words);

/// Returns the choices as JSON for reports: a list of objects with the keys "group", "title" and "command".
nlohmann::json choices_report(const std::vector<ErrorChoice>& choices, const std::vector<std::string>& words);

}  // namespace sparsereel::app
