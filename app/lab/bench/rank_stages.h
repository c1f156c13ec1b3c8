// Measures videos that several GPUs make together, and videos that one GPU makes for comparison.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/lab/bench/pipeline_plan.h"
#include "app/lab/measure/ranks_cost.h"
#include "app/lab/measure/run_progress.h"

namespace sparsereel::app::bench {

/// An item of --gpus: how many GPUs make a video together. If `together` is false, a single GPU runs without the code
/// for groups of ranks. With SPARSEREEL_GROUP=of-one, a single GPU is measured both with that code and without it.
struct GpuCount {
  int64_t gpus = 1;
  bool together = false;
};

/// Returns the items of --gpus in their order; by default a single GPU. Throws Error naming an invalid item.
std::vector<GpuCount> gpu_counts(const Settings& settings, const Lists& lists);
/// Returns true if `together` is true for any item.
bool any_together(const std::vector<GpuCount>& counts);
/// Returns the smallest number of GPUs. Memory is checked for this number: a video that fits with so many GPUs also
/// fits with more.
int64_t fewest(const std::vector<GpuCount>& counts);

/// Returns the device of the first rank, which also makes the videos of a single GPU. `device` is the value of
/// --device. Throws Error if there are too few GPUs, if `device` names a single GPU although a count asks for several,
/// or if a launcher started this process as a rank.
std::string first_device(const std::vector<GpuCount>& counts, const std::string& device);

/// Returns the cost of the plan's video, without the time of its steps.
VideoCost video_cost(const models::ModelSpec& spec, const models::Plan& video);

/// Returns the columns of a row, in addition to those of its combination (see rows.h):
///   gpus; grouped, true if a single GPU ran the code for groups of ranks;
///   ms of the steps (with a cache, of each video's average step);
///   exchange_ms, the time of a step that rank 0 spends in exchanges, including waiting;
///   exchange_percent, exchange_ms in percent of ms; decode_seconds; sound_seconds;
///   scaling and decode_scaling, how many times as fast steps and decoding are as on the first number of GPUs;
///   speedup, over mode full on as many GPUs; steps_ms, the time of each step; video_seconds;
///   expected_ms and expected_exchange_ms, which ranks_cost.h estimates from a single GPU's time in this run;
///   rel_l1 and psnr against mode full of the first count; peak_gib of rank 0.
Columns rank_columns();
Row rank_row(const Combination& combination, const GpuCount& count);

/// Fills scaling, decode_scaling, speedup, video_seconds and the expected times. `steps` and `text_ms` are the number
/// of steps and the time of text encoding of a whole video. `link_speed` is in GB/s, 0 if unknown.
void compare_counts(Rows& rows, const VideoCost& video, double link_speed, int64_t steps, double text_ms);

/// Measures one number of GPUs after the other, each with its own processes. Contenders take turns, one video each.
/// `pipeline` is on the first device. After each number of GPUs, calls `measured` with all rows so far. Throws Error,
/// before anything is loaded, if so many ranks cannot make one of the videos.
void measure_over_ranks(const Settings& settings, const PipelinePlan& plan, const std::vector<GpuCount>& counts,
                        models::Pipeline& pipeline, RunProgress& progress, const Measured& measured);

}  // namespace sparsereel::app::bench
