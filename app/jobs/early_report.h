// Decides where a run that fails before its files are checked may write its report, without replacing anything useful.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options/option_table.h"

namespace sparsereel::app {

/// Returns `wanted`, the file of --report, if a report may be written there, or else an empty path. The file may be
/// new, or hold an earlier report. It must not be named by another option in `settings`, belong to the model, or be
/// another word of the command line.
std::filesystem::path early_report(const std::filesystem::path& wanted, const Settings& settings,
                                   const std::vector<std::string>& words);

}  // namespace sparsereel::app
