// What measuring whole videos begins with.
#pragma once

#include <functional>
#include <vector>

#include "app/measure/run_progress.h"
#include "app/options/settings.h"
#include "models/engine/pipeline.h"

namespace sparsereel::app {

/// Adds those of options that the model leaves without effect, as a plan is made before the model is known, and of
/// steps that take very long. `resolved`: of the request.
void add_model_warnings(std::vector<std::string>& warnings, const Settings& settings,
                        const models::GenerateRequest& request, const models::GenerateSettings& resolved,
                        const models::Pipeline& pipeline);

/// Throws Error where the pipeline's device or dtype has no sparse attention.
void check_sparse_runs(const models::Pipeline& pipeline);

/// The text of each request, on the CPU. `before` is called with the number of texts done and may throw to end the run.
std::vector<at::Tensor> encode_texts(models::Pipeline& pipeline, const std::vector<models::GenerateRequest>& requests,
                                     RunProgress& progress, const std::function<void(int64_t done)>& before);

/// A stage of its own, unless a transformer is there.
void load_transformer(models::Pipeline& pipeline, RunProgress& progress);

}  // namespace sparsereel::app
