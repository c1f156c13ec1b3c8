// Which rows' videos are finished, by the manifests and by what the files in the folder still are.
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

/// A row that was given another place, with the line of the video that stands under its old name.
struct MovedVideo {
  Video* row;
  const ManifestEntry* finished;
};

/// A row is known by its identity. One whose seed is its place's keeps the video that it had at another place, and that
/// seed: else a line added on top would make all videos anew. A row that was kept this way has the video's seed, offset
/// and identity from then on.
class FinishedVideos {
 public:
  /// `entries` must outlive this.
  FinishedVideos(const std::vector<ManifestEntry>& entries, std::filesystem::path folder);

  /// The line of the resolved row's video under its own name, where all its files are there and the video is what was
  /// written; null where there is none.
  const ManifestEntry* find(Video& row);

  /// The same of the rows that find() had no line for, under names that no row has a finished video under: to be asked
  /// once find() was asked about every row. Only what was made for a set of the same file name is moved. They come in
  /// an order in which none takes a name under which a later one still stands; those that wait for each other in a
  /// circle are left out.
  std::vector<MovedVideo> find_moved(const std::vector<Video*>& rows);

  /// Names of finished videos that are there, then of checkpoints, but for these videos and theirs.
  std::vector<std::string> left_over(const std::set<std::string>& names) const;

 private:
  using Entries = std::vector<const ManifestEntry*>;

  bool is_there(const ManifestEntry& entry);
  const ManifestEntry* find_elsewhere(Video& row);
  const ManifestEntry* first_free(const Video& row, const Entries& entries);
  const ManifestEntry* take(Video& row, const ManifestEntry& entry);

  std::filesystem::path folder_;
  std::map<std::string, Entries> by_name_, by_identity_, by_prompt_;  // of what was done, earliest first
  std::map<std::string, Entries> at_any_place_;                       // by identity with seed 0
  std::map<std::string, std::string> hashes_;                         // of files that were read
  std::set<std::string> taken_;                                       // names under which rows have found their videos
};

}  // namespace sparsereel::app::sets
