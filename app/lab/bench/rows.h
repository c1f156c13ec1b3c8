// The rows of each benchmark: their columns, how they begin, and what follows from what was measured.
#pragma once

#include <cstdint>
#include <string>

#include "app/lab/bench/combinations.h"
#include "app/lab/bench/step_times.h"
#include "app/lab/measure/workloads.h"
#include "models/request/attention_run.h"

namespace sparsereel::app::bench {

/// Of `bench attention`, one contender on one workload: workload, B,H,N,D and mode; the selection of mode sparse;
/// kernel (what ran), dtype and device; ms, of which prepass_ms before the first block, and of these prediction_ms to
/// choose blocks; tops, 10^12 operations a second of the blocks that were computed; effective_tops, as papers count:
/// all operations of full attention over the time; limit_percent, tops in percent of what the tensor cores can do;
/// speedup, over the fastest dense row; sparsity, means not counted; skipped_pv, the share of computed blocks that were
/// left before their product with V; mean_share, what means cost, as a share of full attention's work; predicted_error,
/// what the selection predicts; rel_l1 and cosine against exact attention, pooled over calls; note, why there is no
/// time.
Columns attention_columns();

/// Where nothing was measured yet. `policy`: of mode sparse, else null.
Row attention_row(const Workload& workload, const std::string& mode, const attention::Policy* policy);

/// Fills speedup: the fastest row of mode full over each row. All rows are of one workload.
void compare_with_dense(Rows& rows);

/// Fills prediction_ms of the sparse rows: their pre-pass less that of mode quantized, which quantises alike and
/// chooses nothing. Without such a row it stays open.
void split_prepass(Rows& rows);

/// Of `bench quality`, a combination over all prompts beside full attention from the same noise: the fields of the
/// combination, its name and preset; means over the prompts of psnr, ssim and ms_ssim (of the frames, psnr_lowest too,
/// and of two prompts or more of each the 5th percentile, psnr_p5, and the standard deviation, psnr_sd),
/// rel_l1 (of attention's calls, against exact attention on the same inputs), predicted_error, sparsity (means not
/// counted), mean_share (what means cost, as a share of full attention's work), computed_steps (that were not reused)
/// and computed_dense_steps (of those, that kept every block), kept_share (of the blocks, in the others); step_ms, of a
/// step that is computed: of steps that took turns the median, with a cache the mean; denoise_seconds, of all steps of
/// a video; full_step_ms and full_denoise_seconds, the like of full attention; of each of these times the quartiles,
/// step_ms_lower_quartile and so on; speedup, by seconds; what
/// comparison.h says of them; judge, the share of prompts whose video it calls right, and judge_counts; kernel; note:
/// why there is no figure, or what to know about them; prompts, one object each with the same figures.
Columns quality_columns();

/// Where nothing was measured yet.
Row quality_row(const Combination& combination, const std::string& name = {});

/// Fills what follows from the prompts and the times, which those of another model take the place of where some are
/// given. `run_steps`: of the row's videos.
void summarise(Row& row, const std::optional<StepTimes>& times = {}, int64_t run_steps = 0);

/// One denoising step: the contenders' stage.
constexpr const char* kStepStage = "step";

/// Of `bench pipeline`, a contender's denoising step, or a stage that all share: mode, or a rival's name; stage (load
/// text_encoder, text, load transformer, step, load vae, decode, encode); ms of single steps, with a cache of the means
/// of whole runs, and peak_gib, GPU memory in use; note: why there is no time, or what to know about it. Of steps
/// besides: the fields of their combination; kernel (of attention); computed_steps of a run with a cache; matmul_ms,
/// attention_ms and rest_ms, which add up to ms; speedup, over the step of mode full; video_seconds: text, all steps of
/// a usual video and decode, loading left out; sparsity, means not counted, and mean_share, what means cost, as a share
/// of full attention's work; psnr and ssim of frames and rel_l1 of latents against full's; layer_sparsity, and
/// step_layer_sparsity [step][layer], null where a layer did not run.
Columns stage_columns();

/// The rel_l1 of whole videos, which is that of their latents.
Column latents_column();

/// A stage where nothing was measured yet.
Row stage_row(const std::string& stage);
/// The same of a contender's step.
Row step_row(const Combination& combination);

/// Fills what a step's row says of its attention: kernel, sparsity, mean_share, by layers and steps, and with a cache
/// computed_steps.
void add_attention(const models::AttentionRun& run, Row& row);

/// Of a row's peak_gib.
constexpr double gibibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
}

/// Fills speedup and video_seconds of the steps; `steps`: of a usual video.
void compare_steps(Rows& rows, int64_t steps);

/// Two tables: the contenders, then the stages that they share.
std::string stage_markdown(const Rows& rows, int64_t steps, bool aligned = false);

/// The rows of a JSON report of a rival (an object with `rows`, each with at least mode, stage and ms, and the
/// `settings` that it was measured with). Throws Error naming file, row and field, also where a setting that decides
/// about times differs from `settings`, those of this run.
Rows read_rival(const std::string& file, const nlohmann::json& settings);

}  // namespace sparsereel::app::bench
