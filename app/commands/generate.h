// `sparsereel generate`: one prompt, one video, or some with other seeds.
#pragma once

#include "app/job/report.h"

namespace sparsereel::app {

class World;

/// The output of all videos before it was numbered.
struct GivenOutput {
  std::filesystem::path path;
  bool is_named = true;          // by the user
  bool has_random_seed = false;  // the videos' seeds count up from one that was drawn
};

/// videos: the settings of each. The report of one is the run's; that of several
/// has them as `videos`. `world`: of the ranks that make them together, of which this is rank 0; null: there are none.
void generate(const std::vector<Settings>& videos, const GivenOutput& output, World* world, RunReport& report);

}  // namespace sparsereel::app
