// `sparsereel tune`: searches the best setting for a model, and writes a profile.
#pragma once

#include "app/commands/tune/options.h"
#include "app/job/report.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// Adds the options that `generate` has not; `options` must outlive the parsing.
void add_tune_options(CLI::App& command, tuning::TuneOptions& options);

/// Writes the profile and fills the report. What was found so far lies beside the profile until the search is complete.
/// Throws Error where options are out of range, or where the budget ends before anything was compared.
void tune(const Settings& settings, const tuning::TuneOptions& options, RunReport& report);

}  // namespace sparsereel::app
