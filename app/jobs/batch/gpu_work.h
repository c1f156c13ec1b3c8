// The work of one GPU's process in a set: it renders the rows that gpu_processes.h hands out.
#pragma once

#include <vector>

#include "app/jobs/batch/plan.h"
#include "app/ranks/children.h"

namespace sparsereel::app::sets {

/// Runs in a GPU's process: plans the set as the queue's process did, and renders the rows that it is given.
void render_on_this_gpu(const SetSettings& set, const BatchOptions& options, const std::vector<PromptRow>& rows,
                        const StartedRank& gpu);

}  // namespace sparsereel::app::sets
