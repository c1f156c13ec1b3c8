// The options that only `batch` has, or that mean something else there.
#pragma once

#include "app/jobs/batch/plan.h"

namespace CLI {
class App;
}

namespace sparsereel::app {

/// `options` must outlive the parsing.
void add_batch_options(CLI::App& command, sets::BatchOptions& options);

}  // namespace sparsereel::app
