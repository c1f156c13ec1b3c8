// Measures a pipeline's stages, the denoising steps of all contenders in turns.
#pragma once

#include <functional>

#include "app/lab/bench/pipeline_plan.h"
#include "app/lab/measure/run_progress.h"

namespace sparsereel::app::bench {

/// Text, steps, decoding and encoding. `measured`: gets the rows after each of them, in the order of a run.
void measure_stages(const PipelinePlan& plan, models::Pipeline& pipeline, RunProgress& progress,
                    const std::function<void(Rows so_far)>& measured);

}  // namespace sparsereel::app::bench
