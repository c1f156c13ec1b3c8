// `generate --dry-run`: what would be made of which files, and what memory that needs.
#pragma once

#include <vector>

#include "app/jobs/report.h"
#include "app/options/settings.h"

namespace sparsereel::app {

/// The videos of a command line, one Settings each, as `generate` takes them. Loads no weights and writes no video.
/// Throws the Error that the run would end with before its work, once what is known was printed.
void show_generation(const std::vector<Settings>& settings, RunReport& report);

/// Ends a dry run: `text` goes to stdout, before the run's error where there is one.
void end_dry_run(std::string text, const std::optional<Error>& failure, RunReport& report);

constexpr const char* kDryRunHead = "dry run: nothing is loaded, nothing is written\n";
constexpr const char* kNoTime = "time: not estimated; 'sparsereel bench pipeline' measures it\n";

}  // namespace sparsereel::app
