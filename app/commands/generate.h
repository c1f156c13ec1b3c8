// `sparsereel generate`: one prompt, one video.
#pragma once

#include "app/report.h"

namespace sparsereel::app {

void generate(const Settings& settings, RunReport& report);

}  // namespace sparsereel::app
