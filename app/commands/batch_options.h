// Declares the options of `batch` that no other command has, or that mean something else in other commands.
#pragma once

#include "app/jobs/batch/plan.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// Adds the options to the command. `options` must outlive the parsing.
void add_batch_options(CLI::App& command, sets::BatchOptions& options);

}  // namespace sparsereel::app
