// Measures videos that several GPUs make together, beside those of one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/lab/bench/pipeline_plan.h"
#include "app/lab/measure/ranks_cost.h"
#include "app/lab/measure/run_progress.h"

namespace sparsereel::app::bench {

/// One that is a member of --gpus: so many make a video together. A single one has no group, but where
/// SPARSEREEL_GROUP=of-one asks for both ways.
struct GpuCount {
  int64_t gpus = 1;
  bool together = false;
};

/// The list of --gpus, in its order; by default one alone. Throws Error naming what is no such number.
std::vector<GpuCount> gpu_counts(const Settings& settings, const Lists& lists);
/// Whether there are others than one alone.
bool any_together(const std::vector<GpuCount>& counts);
/// The smallest of them: what so few have the memory for, all can make.
int64_t fewest(const std::vector<GpuCount>& counts);

/// The device of the first rank, which has one's videos to itself, too; `device`: what was asked for. Throws Error
/// where there are fewer cards, one of several is named, or a launcher has started ranks.
std::string first_device(const std::vector<GpuCount>& counts, const std::string& device);

/// Of the plan's video, without the time of its steps.
VideoCost video_cost(const models::ModelSpec& spec, const models::Plan& video);

/// Fields of a row beside those of its combination (see rows.h): gpus; grouped, one went the way of several; ms of the
/// steps, with a cache of each video's mean; exchange_ms of a step, likewise, that rank 0 spends in exchanges, waiting
/// for the slowest rank with them, and
/// exchange_percent of its time; decode_seconds; scaling and decode_scaling, over the first count's; speedup, over mode
/// full on as many; steps_ms, each of them; video_seconds; expected_ms and expected_exchange_ms, by ranks_cost.h, of
/// what one alone takes here; rel_l1 and psnr against mode full of the first count; peak_gib of rank 0.
Columns rank_columns();
Row rank_row(const Combination& combination, const GpuCount& count);

/// Fills scaling, decode_scaling, speedup, video_seconds and what is expected. `steps` and `text_ms`: of a usual video.
/// `link_speed`: as cost_over_ranks(); 0: unknown.
void compare_counts(Rows& rows, const VideoCost& video, double link_speed, int64_t steps, double text_ms);

/// Count after count, each with processes of its own; the contenders take turns, a video each. `pipeline`: on the first
/// device. `measured`: gets the rows after each count. Throws Error where so many ranks cannot make one of the videos,
/// before anything is loaded.
void measure_over_ranks(const Settings& settings, const PipelinePlan& plan, const std::vector<GpuCount>& counts,
                        models::Pipeline& pipeline, RunProgress& progress,
                        const std::function<void(Rows so_far)>& measured);

}  // namespace sparsereel::app::bench
