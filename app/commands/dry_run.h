// `generate --dry-run`: shows the videos that would be made, the files used and the memory needed.
#pragma once

#include <vector>

#include "app/jobs/report.h"
#include "app/options/option_table.h"

namespace sparsereel::app {

/// Prints and reports the videos that `generate` would make; `settings` holds one entry for each video. Loads no
/// weights and writes no video. If the real run would fail before it computes anything, prints what is known and throws
/// the Error of that run.
void show_generation(const std::vector<Settings>& settings, RunReport& report);

/// Ends a dry run: `text` is printed on stdout, unless the report is printed there. Then throws `failure` if there is
/// one.
void end_dry_run(std::string text, const std::optional<Error>& failure, RunReport& report);

constexpr const char* kDryRunHead = "dry run: nothing is loaded, nothing is written\n";
constexpr const char* kNoTime = "time: not estimated; 'sparsereel bench pipeline' measures it\n";

}  // namespace sparsereel::app
