// Prints the remedies of an error that has several. Each remedy is the user's command with other options. No torch.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::app {

using OptionValues = std::vector<std::pair<std::string, std::string>>;  // keyed by option key

/// Returns the command line of `words`, quoted for a shell, with `values` set: replaced where present, else appended.
/// Removes options that exclude one of `values`. The program is named as the user called it.
std::string command_with(std::vector<std::string> words, const OptionValues& values);

/// Prints each choice with its command, under the name of its group.
void print_choices(std::ostream& stream, const std::vector<ErrorChoice>& choices,
                   const std::vector<std::string>& words);

/// Returns the choices as JSON for reports: a list of objects with the keys "group", "title" and "command".
nlohmann::json choices_report(const std::vector<ErrorChoice>& choices, const std::vector<std::string>& words);

}  // namespace sparsereel::app
