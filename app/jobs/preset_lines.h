// Describes in one line what a preset or a profile did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/jobs/video.h"

namespace sparsereel::app {

/// Returns "preset fast, with --topk 0.5": the preset or profile and the options given beside it. Empty if there is
/// neither a preset nor a profile.
std::string preset_name(const VideoTask& video);

/// Returns what is known before the video is made: "preset balanced: 10 of 50 steps with every block, then topk 0.3".
/// Empty if there is neither a preset nor a profile.
std::string chosen_text(const VideoTask& video);

/// Returns what was done: "preset balanced: 10 of 50 steps with every block, then topk 0.3; forecast:0.15 computed 15
/// of 50 steps; --preset exact for full attention". Options given beside the preset or profile follow its name. Empty
/// if there is neither. `fewest` and `most` are the smallest and the largest number of computed steps of several
/// videos.
std::string preset_line(const VideoTask& video, int64_t fewest, int64_t most);

/// The lines of a run's videos. Videos with equal settings share a line.
class PresetLines {
 public:
  void add(const VideoTask& video, int64_t computed_steps);
  /// Returns one line per setting: "preset balanced: ...". If there are several settings, each line begins with its
  /// number of videos: "3 videos: preset balanced: ...".
  std::vector<std::string> lines() const;
  /// Returns the preset_name() of all videos; empty if they differ.
  std::string common_name() const;

 private:
  struct Setting {
    const VideoTask* video;  // the first video with this setting
    int64_t videos = 0, fewest = 0, most = 0;
  };
  std::vector<Setting> settings_;
};

}  // namespace sparsereel::app
