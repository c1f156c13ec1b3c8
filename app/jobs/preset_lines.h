// What came of a preset or a profile, in a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/jobs/video.h"

namespace sparsereel::app {

/// "preset fast, with --topk 0.5": what was given beside it; likewise of a profile. Empty: neither holds.
std::string preset_name(const Video& video);

/// "preset balanced: 10 of 50 steps with every block, then topk 0.3": what is known before the video is made. Empty:
/// neither a preset nor a profile holds.
std::string chosen_text(const Video& video);

/// "preset balanced: 10 of 50 steps with every block, then topk 0.3; forecast:0.15 computed 15 of 50 steps; --preset
/// exact for full attention", after the name what was given beside it, likewise of a profile. Empty: neither held.
/// `fewest`, `most`: steps computed, of several videos.
std::string preset_line(const Video& video, int64_t fewest, int64_t most);

/// Those of a run's videos: one for all that had the same.
class PresetLines {
 public:
  void add(const Video& video, int64_t computed_steps);
  /// "3 videos: preset balanced: ...", one a setting; the number where there are several settings.
  std::vector<std::string> lines() const;
  /// preset_name() of all videos; empty where they differ.
  std::string common_name() const;

 private:
  struct Setting {
    const Video* video;  // the first
    int64_t videos = 0, fewest = 0, most = 0;
  };
  std::vector<Setting> settings_;
};

}  // namespace sparsereel::app
