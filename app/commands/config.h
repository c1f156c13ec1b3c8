// `sparsereel config show`: what would run, and where each value comes from.
#pragma once

#include "app/options/settings.h"

namespace sparsereel::app {

void show_config(const Settings& settings);

}  // namespace sparsereel::app
