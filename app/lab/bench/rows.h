// The rows of each benchmark: their columns, empty rows, and fields derived from measurements.
#pragma once

#include <cstdint>
#include <string>

#include "app/lab/bench/combinations.h"
#include "app/lab/bench/step_times.h"
#include "app/lab/measure/workloads.h"
#include "models/request/attention_run.h"

namespace sparsereel::app::bench {

/// Returns the columns of `bench attention`, for one contender on one workload.
///   workload, B,H,N,D and mode; the selection of mode sparse; kernel (that ran), dtype and device;
///   ms; prepass_ms, its part before the first block; prepass_percent, prepass_ms in percent of ms;
///   prediction_ms, the part of prepass_ms that chooses blocks;
///   tops, 10^12 operations per second of the computed blocks;
///   effective_tops, as in papers: all operations of full attention over the time;
///   limit_percent, tops in percent of the tensor cores' limit; speedup, over the fastest row of mode full;
///   sparsity, in which means do not count as computed;
///   skipped_pv, the share of computed blocks that were skipped before their product with V;
///   mean_share, the cost of means as a share of full attention's work;
///   predicted_error, from choosing blocks; rel_l1 and cosine against exact attention, pooled over calls;
///   note, why there is no time.
Columns attention_columns();

/// Returns a row without measurements. `policy` is the policy of mode sparse; null for other modes.
Row attention_row(const Workload& workload, const std::string& mode, const attention::Policy* policy);

/// Fills speedup of each row: the time of the fastest row of mode full, divided by the row's time. All rows must be of
/// one workload.
void compare_with_dense(Rows& rows);

/// Fills prediction_ms of the sparse rows in 8 bits: the time of their pre-pass minus that of mode quantized, which
/// quantizes in the same way but chooses no blocks. Without a quantized row it stays empty.
void split_prepass(Rows& rows);

/// Returns the columns of `bench quality`. A row compares a combination with full attention from the same noise.
///   the fields of the combination, its name and preset;
///   psnr, ssim and ms_ssim of the frames, averaged over the prompts; psnr_lowest;
///   from two prompts on, also the 5th percentile (psnr_p5) and the standard deviation (psnr_sd) of each of these;
///   rel_l1 of attention calls against exact attention on the same inputs; predicted_error; sparsity;
///   mean_share, the cost of means as a share of full attention's work;
///   computed_steps, the number of steps that the cache did not skip;
///   computed_dense_steps, how many of these compute every block;
///   kept_share, the share of blocks that are computed in the steps that drop blocks;
///   step_ms of a computed step: the median of steps that took turns; with a cache, the mean;
///   denoise_seconds of all steps of a video; full_step_ms and full_denoise_seconds, the same times of full attention;
///   the quartiles of each of these times (step_ms_lower_quartile and so on); speedup, by seconds;
///   the fields of comparison.h; `judge`, the share of videos that the classifier calls right; judge_counts; kernel;
///   note, why a figure is missing or what to know about the row; prompts, a list with the figures of each prompt.
Columns quality_columns();

/// Returns a row without measurements.
Row quality_row(const Combination& combination, const std::string& name = {});

/// Fills the fields that are computed from the figures of the prompts and from the times. `times`, if given, are those
/// of another model and replace the times of this run. `run_steps` is the number of steps of the row's videos.
void summarise(Row& row, const std::optional<StepTimes>& times = {}, int64_t run_steps = 0);

/// A denoising step, the only stage in which contenders differ.
constexpr const char* kStepStage = "step";

/// Returns the columns of `bench pipeline`, for a contender's denoising step or a stage that all share.
///   mode, or a baseline's name;
///   stage (load text_encoder, text, image, load transformer, step, sound, load vae, decode, encode);
///   ms of single steps (with a cache, of the means of whole runs); peak_gib, GPU memory in use;
///   note, why there is no time or what to know about the row.
/// Only steps have the fields of their combination and these:
///   kernel of attention; computed_steps of a run with a cache; matmul_ms, attention_ms and rest_ms (their sum is ms);
///   speedup, over the step of mode full; video_seconds: text, all steps of a whole video, sound and decode, without
///   loading; sparsity; mean_share, the cost of means as a share of full attention's work; psnr and ssim
///   of frames and rel_l1 of latents against mode full; layer_sparsity and step_layer_sparsity [step][layer], null if a
///   layer did not run.
Columns stage_columns();

/// Returns the column rel_l1 of `bench pipeline`, which compares latents and not attention.
Column latents_column();

/// Returns a row of a stage without measurements.
Row stage_row(const std::string& stage);
/// Returns a row of a contender's step without measurements.
Row step_row(const Combination& combination);

/// Fills the step's fields about attention: kernel, sparsity (total, by layer and by step), mean_share, and
/// computed_steps with a cache.
void add_attention(const models::AttentionRun& run, Row& row);

constexpr double gibibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
}

/// Fills speedup and video_seconds of the steps. `steps` is the number of steps of a whole video.
void compare_steps(Rows& rows, int64_t steps);

/// Returns two Markdown tables: the contenders, then the stages that they share.
std::string stage_markdown(const Rows& rows, int64_t steps, bool aligned = false);

/// Reads the rows of a baseline's JSON report: an object with the keys `rows` (each with at least the keys mode, stage
/// and ms) and `settings`, the settings of its measurement. Throws Error naming file, row and field if a field is
/// missing or wrong, or if a setting that affects times differs from `settings`, the settings of this run. Numbers of
/// tokens are compared only if `text_has_length`, which means that all texts of the model have the same number of
/// tokens. Otherwise this run knows the number only once its text is encoded.
Rows read_baseline(const std::string& file, const nlohmann::json& settings, bool text_has_length = true);

}  // namespace sparsereel::app::bench
