// Measures the stages of a pipeline; in the denoising steps all contenders take turns.
#pragma once

#include "app/lab/bench/pipeline_plan.h"
#include "app/lab/measure/run_progress.h"

namespace sparsereel::app::bench {

/// Measures text, steps, decoding, sound and encoding. After each stage, calls `measured` with all rows so far, in the
/// order in which a run has their stages.
void measure_stages(const PipelinePlan& plan, models::Pipeline& pipeline, RunProgress& progress,
                    const Measured& measured);

}  // namespace sparsereel::app::bench
