// Several videos of one prompt: --batch-count.
#pragma once

#include <filesystem>
#include <vector>

#include "app/options/settings.h"

namespace sparsereel::app {

/// How many videos each prompt makes. Throws Error where that is out of range.
int64_t video_count(const Settings& settings);

/// The file of one of `count` videos, from 0: "clip.mp4" -> "clip-3.mp4", of ten and more "clip-03.mp4"; "frames/" ->
/// "frames-3/". The same where there is one alone.
std::filesystem::path numbered(const std::filesystem::path& file, int64_t index, int64_t count);

/// The settings of each video: seeds s, s + 1, ..., its files numbered.
std::vector<Settings> settings_of_videos(const Settings& settings);

}  // namespace sparsereel::app
