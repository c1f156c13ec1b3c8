// The results of `bench pipeline` and how they are written: Markdown, CSV, JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/sections.h"
#include "app/commands/bench/selections.h"
#include "app/measure/timing.h"

namespace sparsereel::app::bench {

constexpr const char* kStepStage = "step";  // one denoising step: the contenders' stage

/// One stage: a contender's denoising step, or what all contenders share. What does not apply or is not known is unset:
/// an empty cell, null in JSON.
struct StageRow {
  std::string mode;   // full, quantized, sparse; a rival's name; empty: shared by all
  std::string stage;  // load text_encoder, text, load transformer, step, load vae, decode, encode
  SelectionCells selection;
  std::string token_order;
  std::string cache;                      // empty: none
  std::string kernel;                     // of attention
  std::optional<int64_t> computed_steps;  // of a run with a cache
  std::optional<Spread> ms;               // of single steps; with a cache of the means of whole runs
  std::optional<Split> split;             // adds up to the median of ms; none with a cache
  std::optional<double> speedup;          // over the step of mode full
  std::optional<double> video_seconds;    // text, all steps of a usual video and decode, loading left out
  std::optional<double> sparsity;         // means not counted
  std::optional<double> mean_share;       // what means cost: their share of full attention's work
  std::vector<double> layer_sparsity;
  std::vector<std::vector<double>> step_layer_sparsity;  // [step][layer]; NaN (null in JSON) where a layer did not run
  std::optional<double> psnr, ssim;                      // frames against full's
  std::optional<double> rel_l1;                          // final latents against full's
  std::optional<double> peak_gib;                        // GPU memory in use
  std::string note;                                      // why there is no time, or what to know about it
};

/// Fills speedup and video_seconds of the steps; `steps`: of a usual video.
void compare_steps(std::vector<StageRow>& rows, int64_t steps);

/// Two tables: the contenders, then the stages that they share. Columns that are empty in every row are left out.
std::string stage_markdown(const std::vector<StageRow>& rows, int64_t steps);
/// RFC 4180, every column; the head names the units.
std::string stage_csv(const std::vector<StageRow>& rows);
nlohmann::json stage_json(const std::vector<StageRow>& rows);

/// The rows of a JSON report of a rival (an object with `rows`, each with at least mode, stage and ms, and the
/// `settings` that it was measured with). Throws Error naming file, row and field, also where a setting that decides
/// about times differs from `settings`, those of this run.
std::vector<StageRow> read_rival(const std::string& file, const nlohmann::json& settings);

}  // namespace sparsereel::app::bench
