// The ways out of an error that has several, as commands to copy: the user's own with other options. No torch.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::app {

using OptionValues = std::vector<std::pair<std::string, std::string>>;  // by the options' keys

/// The command line of these words, quoted for a shell, with these options: in place of their values, or behind all.
/// What excludes one of them goes. The program is called as the user called it.
std::string command_with(std::vector<std::string> words, const OptionValues& values);

/// Prints each choice with its command, under the name of its group.
void print_choices(std::ostream& stream, const std::vector<ErrorChoice>& choices,
                   const std::vector<std::string>& words);

/// [{"group", "title", "command"}], for reports.
nlohmann::json choices_report(const std::vector<ErrorChoice>& choices, const std::vector<std::string>& words);

}  // namespace sparsereel::app
