// Says what to print and report once a video is made.
#pragma once

#include <string>
#include <vector>

#include "app/jobs/outputs.h"
#include "app/jobs/report.h"
#include "models/request/outcome.h"

namespace sparsereel::app {

/// Returns a view of `frames` (fp32, CPU, contiguous [F, H, W, 3]), which must outlive the view.
FramesView frames_view(const at::Tensor& frames);

/// Returns a view of the sound, which must outlive the view.
SoundView sound_view(const models::Sound& sound);

/// Returns what is wrong with a written video: "the video is black". The sound is wrong if samples were NaN or
/// infinite.
std::vector<std::string> defects(const models::FrameFacts& frames, const WrittenSound& sound);

/// Call it once the video is written. Releases the latents, unless the video is defective. In that case it returns
/// warnings that say where the latents are.
std::vector<std::string> defect_warnings(const models::FrameFacts& frames, const WrittenSound& sound,
                                         KeptLatents& kept);

/// Returns the command that decodes saved latents, with the options of this run that `decode` accepts.
std::string decode_command(const Settings& settings, const RunOptions& run, const std::filesystem::path& latents);

/// Adds the facts of the written video and of its sound.
void add_output_report(nlohmann::json& report, const RunOptions& run, const models::VideoShape& shape,
                       const WrittenVideo& written);

/// Returns the facts of a sound for reports and manifests.
nlohmann::json sound_report(const WrittenSound& sound);

/// Returns "peak memory 1.3 GiB".
std::string memory_summary(const nlohmann::json& memory);
void print_warnings(const std::vector<std::string>& warnings);

}  // namespace sparsereel::app
