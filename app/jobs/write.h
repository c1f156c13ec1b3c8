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

/// Call it once the video is written. Releases the latents, unless the video is defective. In that case it returns a
/// warning that says where the latents are.
std::string defect_warning(const models::FrameFacts& frames, KeptLatents& kept);

/// Returns the command that decodes saved latents, with the options of this run that `decode` accepts.
std::string decode_command(const Settings& settings, const RunOptions& run, const std::filesystem::path& latents);

void add_output_report(nlohmann::json& report, const RunOptions& run, const models::VideoShape& shape,
                       const WrittenVideo& written);

/// Returns "peak memory 1.3 GiB".
std::string memory_summary(const nlohmann::json& memory);
void print_warnings(const std::vector<std::string>& warnings);

}  // namespace sparsereel::app
