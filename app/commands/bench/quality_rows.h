// The rows of `bench quality`: a combination over all prompts, beside full attention from the same noise.
#pragma once

#include "app/commands/bench/combinations.h"

namespace sparsereel::app::bench {

/// The fields of its combination; means over the prompts of psnr and ssim (of the frames, psnr_lowest too), rel_l1 (of
/// attention's calls, against exact attention on the same inputs), predicted_error, sparsity (means not counted),
/// mean_share (what means cost, as a share of full attention's work) and computed_steps (that were not reused); step_ms
/// and full_step_ms, medians of steps that took turns, with a cache the mean, and speedup; judge, the share of prompts
/// whose video it calls right, and judge_counts; kernel; note: why there is no figure, or what to know about them;
/// prompts, one object each with the same figures.
Columns quality_columns();

/// Where nothing was measured yet.
Row quality_row(const Combination& combination);

/// Fills what follows from the prompts and the times.
void summarise(Row& row);

}  // namespace sparsereel::app::bench
