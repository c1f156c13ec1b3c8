// Finds rows whose videos are finished, from the manifests and the files in the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "app/jobs/batch/manifest.h"
#include "app/jobs/video.h"

namespace sparsereel::app::sets {

/// A row whose video exists under another name, because the row moved within the set.
struct MovedVideo {
  VideoTask* row;
  const ManifestEntry* finished;
};

/// Finds finished videos by the identity of their rows. A row without its own seed gets one from its place. If such a
/// row has moved, it keeps its video and takes over that video's seed, offset and identity. Otherwise a line added on
/// top would render every video again.
class FinishedVideos {
 public:
  /// `entries` must outlive this.
  FinishedVideos(const std::vector<ManifestEntry>& entries, std::filesystem::path folder);

  /// Returns the manifest line of the resolved row's video under its own name. Returns null unless all its files exist
  /// and the video has not changed since it was written.
  const ManifestEntry* find(VideoTask& row);

  /// Returns videos that exist under other names, for rows for which find() returned null. Call it after find() for
  /// every row. Only videos of a set with the same file name are moved. They are in such an order that none takes a
  /// name that a later video still has; videos that wait for each other in a circle are left out.
  std::vector<MovedVideo> find_moved(const std::vector<VideoTask*>& rows);

  /// Returns the existing finished videos, then the checkpoints, that belong to none of these names.
  std::vector<std::string> left_over(const std::set<std::string>& names) const;

 private:
  using Entries = std::vector<const ManifestEntry*>;

  bool is_there(const ManifestEntry& entry);
  const ManifestEntry* find_elsewhere(VideoTask& row);
  const ManifestEntry* first_free(const VideoTask& row, const Entries& entries);
  const ManifestEntry* take(VideoTask& row, const ManifestEntry& entry);

  std::filesystem::path folder_;
  std::map<std::string, Entries> by_name_, by_identity_, by_prompt_;  // finished lines, earliest first
  std::map<std::string, Entries> at_any_place_;  // lines by the identity that they have with seed 0
  std::map<std::string, std::string> hashes_;    // hashes of files that were read
  std::set<std::string> taken_;                  // names that rows have taken
};

}  // namespace sparsereel::app::sets
