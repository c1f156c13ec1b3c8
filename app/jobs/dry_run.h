// Describes for --dry-run the video that a run would make and the memory that it needs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/video.h"

namespace sparsereel::app {

/// Resolves the video as a run does. Returns nothing if the run would succeed. If it would fail, fills in the plan and
/// returns the error. Throws Error if the plan cannot be made either. `ranks` is the number of ranks that make the
/// video together.
std::optional<Error> foresee(VideoTask& video, const models::Pipeline& pipeline, LoadedFiles& files, int64_t ranks);

/// Returns what is known of the video before it is made, under the keys that reports use: output, size, frames, frame
/// rate, steps, attention mode and preset. Cache, seed, choice of blocks and the step to resume from are added if they
/// apply.
nlohmann::json expected_video(const VideoTask& video);

/// Returns the bytes needed by stage and the bytes available, as a JSON object with the keys "device",
/// "obtainable_bytes", "stages" (a list), "fits" and, if the memory plan is known, "plan".
nlohmann::json expected_memory(const models::Plan& plan, const models::Pipeline& pipeline, int64_t ranks);

/// Returns as JSON which file became which part of the model, and the device and dtype of a run.
nlohmann::json expected_model(const RunOptions& run, const models::Pipeline& pipeline, const models::Plan& plan);

/// Formats the results of the three functions above for people, in one or several lines each.
std::string model_text(const nlohmann::json& model);
std::string video_text(const nlohmann::json& video);
std::string memory_text(const nlohmann::json& memory);

}  // namespace sparsereel::app
