// Describes for --dry-run the video that a run would make and the memory that it needs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/video.h"

namespace sparsereel::app {

/// Resolves the video as a run does. Returns the error that the run would end with; the video's plan is known then all
/// the same. Throws that error where the plan cannot be known. `ranks`: that make the video together.
std::optional<Error> foresee(Video& video, const models::Pipeline& pipeline, LoadedFiles& files, int64_t ranks);

/// Size, frames, steps, seed and output by the names that reports have, and the settings' preset.
nlohmann::json expected_video(const Video& video);

/// Bytes by stage against the memory that there is: {"device", "obtainable_bytes", "stages": [...], "fits"}.
nlohmann::json expected_memory(const models::Plan& plan, const models::Pipeline& pipeline, int64_t ranks);

/// Which files became which parts of the model, and where and in which dtype it would run.
nlohmann::json expected_model(const RunOptions& run, const models::Pipeline& pipeline, const models::Plan& plan);

/// The three above for people, a line or several each.
std::string model_text(const nlohmann::json& model);
std::string video_text(const nlohmann::json& video);
std::string memory_text(const nlohmann::json& memory);

}  // namespace sparsereel::app
