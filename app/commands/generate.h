// `sparsereel generate`: one prompt, one video, or some with other seeds.
#pragma once

#include "app/job/report.h"

namespace sparsereel::app {

/// videos: the settings of each; output: theirs before it was numbered. The report of one is the run's; that of several
/// has them as `videos`.
void generate(const std::vector<Settings>& videos, const std::filesystem::path& output, RunReport& report);

}  // namespace sparsereel::app
