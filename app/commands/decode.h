// `sparsereel decode`: saved latents, a video.
#pragma once

#include "app/report.h"

namespace sparsereel::app {

void decode(const std::filesystem::path& latents, const Settings& settings, RunReport& report);

}  // namespace sparsereel::app
