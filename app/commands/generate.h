// `sparsereel generate`: one prompt, one video, or some with other seeds.
#pragma once

#include "app/job/report.h"

namespace sparsereel::app {

class World;

/// videos: the settings of each; output: theirs before it was numbered. The report of one is the run's; that of several
/// has them as `videos`. `world`: of the ranks that make them together, of which this is rank 0; null: there are none.
void generate(const std::vector<Settings>& videos, const std::filesystem::path& output, World* world,
              RunReport& report);

}  // namespace sparsereel::app
