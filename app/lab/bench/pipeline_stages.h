// Measures the stages of a pipeline; in the denoising steps all contenders take turns.
#pragma once

#include "app/lab/bench/pipeline_plan.h"
#include "app/lab/measure/run_progress.h"

namespace sparsereel::app::bench {

/// Measures text, steps, decoding, sound and encoding. `measured` gets the rows after each stage, in the order of a
/// run.
void measure_stages(const PipelinePlan& plan, models::Pipeline& pipeline, RunProgress& progress,
                    const Measured& measured);

}  // namespace sparsereel::app::bench
