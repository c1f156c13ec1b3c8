// Declares the options that commands share: one function per heading of --help. OptionSpec in option_table.h describes
// an option.
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

/// Returns the commands that denoise, apart from `generate` and `batch`, which OptionSpec::commands does not list.
std::vector<Command> that_denoise();
/// Returns the commands that take a model, apart from `generate` and `batch`.
std::vector<Command> with_a_model();

/// Returns the lists as one list, in their order.
std::vector<OptionSpec> joined(const std::vector<std::vector<OptionSpec>>& lists);

}  // namespace sparsereel::app::groups
