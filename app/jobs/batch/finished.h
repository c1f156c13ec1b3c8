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

/// Finds finished videos by the identity of their rows. A row that gives no seed gets one from its position in the set.
/// If such a row has moved, the row keeps its video, and takes over the video's seed, seed offset and identity. Without
/// this rule, a line added at the top of a set would make every video again.
class FinishedVideos {
 public:
  /// `entries` must outlive this object.
  FinishedVideos(const std::vector<ManifestEntry>& entries, std::filesystem::path folder);

  /// Returns the manifest line of the finished video that has the row's name. The row must be resolved. Returns null
  /// unless all files of the row exist, and the video and its sound have not changed since they were written.
  const ManifestEntry* find(VideoTask& row);

  /// Returns videos that exist under other names, for rows for which find() returned null. Call it after find() was
  /// called for every row. Returns only videos that were made from a set with the same file name. They are ordered so
  /// that no video takes a name that a later one still has. Videos that would have to exchange names are left out.
  std::vector<MovedVideo> find_moved(const std::vector<VideoTask*>& rows);

  /// Returns finished videos, and after them checkpoints, that exist but belong to none of these names.
  std::vector<std::string> left_over(const std::set<std::string>& names) const;

 private:
  using Entries = std::vector<const ManifestEntry*>;

  bool is_there(const ManifestEntry& entry);
  bool is_unchanged(const std::filesystem::path& file, uint64_t bytes, const std::string& sha256);
  const ManifestEntry* find_elsewhere(VideoTask& row);
  const ManifestEntry* first_free(const VideoTask& row, const Entries& entries);
  const ManifestEntry* take(VideoTask& row, const ManifestEntry& entry);

  std::filesystem::path folder_;
  std::map<std::string, Entries> by_name_, by_identity_, by_prompt_;  // finished lines, earliest first
  std::map<std::string, Entries> at_any_place_;  // lines by the identity that their videos would have with seed 0
  std::map<std::filesystem::path, std::string> hashes_;  // hashes of files that were read
  std::set<std::string> taken_;                          // names that rows have taken
};

}  // namespace sparsereel::app::sets
