// `sparsereel decode`: saved latents, a video.
#pragma once

#include "app/job/report.h"

namespace sparsereel::app {

void decode(const std::filesystem::path& latents, const Settings& settings, RunReport& report);

}  // namespace sparsereel::app
