// `generate --dry-run`: shows the videos that would be made, the files used and the memory needed.
#pragma once

#include <vector>

#include "app/jobs/report.h"
#include "app/options/settings.h"

namespace sparsereel::app {

/// Describes the videos of a command line; `settings` holds one entry for each, as for `generate`. Loads no weights and
/// writes no video. If the run would fail before its work, prints what is known and throws that Error.
void show_generation(const std::vector<Settings>& settings, RunReport& report);

/// Ends a dry run: prints `text` on stdout, then throws `failure` if there is one.
void end_dry_run(std::string text, const std::optional<Error>& failure, RunReport& report);

constexpr const char* kDryRunHead = "dry run: nothing is loaded, nothing is written\n";
constexpr const char* kNoTime = "time: not estimated; 'sparsereel bench pipeline' measures it\n";

}  // namespace sparsereel::app
