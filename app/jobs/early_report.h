// The report of a run that fails before its files are checked, which writes over nothing that may be of use.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options/settings.h"

namespace sparsereel::app {

/// `wanted`, the file of --report, where it may be written: nothing stands there or an earlier report, and it is none
/// of the files that `settings` name, nor of their model's, nor any word of the command line. Empty where it may not.
std::filesystem::path early_report(const std::filesystem::path& wanted, const Settings& settings,
                                   const std::vector<std::string>& words);

}  // namespace sparsereel::app
