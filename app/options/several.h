// Several videos from one prompt: --batch-count.
#pragma once

#include <filesystem>
#include <vector>

#include "app/options/settings.h"

namespace sparsereel::app {

/// Returns how many videos each prompt makes. Throws Error if that is out of range.
int64_t video_count(const Settings& settings);

/// Returns the file of video `index` (from 0) of `count`. For "clip.mp4" it is "clip-3.mp4", or "clip-03.mp4" if there
/// are ten or more; for "frames/" it is "frames-3/". Returns `file` itself if count is 1.
std::filesystem::path numbered(const std::filesystem::path& file, int64_t index, int64_t count);

/// Returns the settings of each video: seeds s, s + 1, ..., and numbered files.
std::vector<Settings> settings_of_videos(const Settings& settings);

}  // namespace sparsereel::app
