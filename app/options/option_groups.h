// The rows of the option table, one function per heading of --help. OptionSpec in option_table.h says what a row holds.
#pragma once

#include <string>
#include <vector>

#include "app/options/option_table.h"

namespace sparsereel::app::groups {

std::vector<OptionSpec> prompt();
std::vector<OptionSpec> video();
std::vector<OptionSpec> sampling();
std::vector<OptionSpec> attention();
std::vector<OptionSpec> machine();
std::vector<OptionSpec> latents();
std::vector<OptionSpec> output();

/// Returns the commands that make latents, apart from `generate` and `batch`.
std::vector<Command> that_denoise();
/// Returns the commands that take a model, apart from `generate` and `batch`.
std::vector<Command> with_a_model();

std::vector<OptionSpec> joined(const std::vector<std::vector<OptionSpec>>& lists);

}  // namespace sparsereel::app::groups
