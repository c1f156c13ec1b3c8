// The rows of `bench pipeline`: a contender's denoising step, or a stage that all contenders share.
#pragma once

#include <string>

#include "app/commands/bench/combinations.h"

namespace sparsereel::app::bench {

constexpr const char* kStepStage = "step";  // one denoising step: the contenders' stage

/// mode, or a rival's name; stage (load text_encoder, text, load transformer, step, load vae, decode, encode); ms of
/// single steps, with a cache of the means of whole runs, and peak_gib, GPU memory in use; note: why there is no time,
/// or what to know about it. Of steps besides: the fields of their combination; kernel (of attention); computed_steps
/// of a run with a cache; matmul_ms, attention_ms and rest_ms, which add up to ms; speedup, over the step of mode full;
/// video_seconds: text, all steps of a usual video and decode, loading left out; sparsity, means not counted, and
/// mean_share, what means cost, as a share of full attention's work; psnr and ssim of frames and rel_l1 of latents
/// against full's; layer_sparsity, and step_layer_sparsity [step][layer], null where a layer did not run.
Columns stage_columns();

/// A stage where nothing was measured yet.
Row stage_row(const std::string& stage);
/// The same of a contender's step.
Row step_row(const Combination& combination);

/// Fills speedup and video_seconds of the steps; `steps`: of a usual video.
void compare_steps(Rows& rows, int64_t steps);

/// Two tables: the contenders, then the stages that they share.
std::string stage_markdown(const Rows& rows, int64_t steps, bool aligned = false);

/// The rows of a JSON report of a rival (an object with `rows`, each with at least mode, stage and ms, and the
/// `settings` that it was measured with). Throws Error naming file, row and field, also where a setting that decides
/// about times differs from `settings`, those of this run.
Rows read_rival(const std::string& file, const nlohmann::json& settings);

}  // namespace sparsereel::app::bench
