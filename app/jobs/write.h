// Once there is a video: what to say of it.
#pragma once

#include <string>
#include <vector>

#include "app/jobs/outputs.h"
#include "app/jobs/report.h"
#include "models/request/outcome.h"

namespace sparsereel::app {

/// frames: fp32 CPU [F, H, W, 3], contiguous, which must outlive the view.
FramesView frames_view(const at::Tensor& frames);

/// Once the video is written: lets its latents go, or says what is wrong with it and where they are; empty: nothing.
std::string defect_warning(const models::FrameFacts& frames, KeptLatents& kept);

/// The command that makes the video out of saved latents, with what of this run's options `decode` takes.
std::string decode_command(const Settings& settings, const RunOptions& run, const std::filesystem::path& latents);

void add_output_report(nlohmann::json& report, const RunOptions& run, const models::VideoShape& shape,
                       const WrittenVideo& written);

/// "peak memory 1.3 GiB"
std::string memory_summary(const nlohmann::json& memory);
void print_warnings(const std::vector<std::string>& warnings);

}  // namespace sparsereel::app
