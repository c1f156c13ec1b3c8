// `sparsereel batch`: a prompt set -> a folder of videos and its manifests.
#pragma once

#include "app/commands/batch/plan.h"
#include "app/job/report.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// Adds the options that `generate` has not, or means otherwise; `options` must outlive the parsing.
void add_batch_options(CLI::App& command, sets::BatchOptions& options);

/// Renders what is not finished of this process's share, or with --status sums the manifests. Throws Error (exit code
/// 1) at the end where rows failed.
void batch(const sets::SetSettings& set, const sets::BatchOptions& options, RunReport& report);

}  // namespace sparsereel::app
