// The videos of a server, on disk and in memory. A video's files lie side by side in one folder: ID.json (its record
// and recipe), ID.mp4, ID.thumbnail.png, ID.sheet.png and its pictures. Records are replaced atomically. Safe for
// threads.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/serve/record.h"

namespace sparsereel::app::serve {

/// The files of a video.
struct VideoFiles {
  std::filesystem::path record, video, thumbnail, sheet;
};

VideoFiles files_of_video(const std::filesystem::path& folder, const std::string& id);

/// The limits of the finished videos that are kept: their age, and their bytes in all. 0 means no limit.
struct KeepRule {
  int64_t seconds = 0;
  uint64_t bytes = 0;
};

/// Parses "7d", "12h" or "20GB". Throws Error naming --keep.
KeepRule parse_keep_rule(const std::string& text);

/// A page of the list of videos.
struct VideoPage {
  std::vector<std::string> ids;
  bool has_more = false;
};

class VideoStore {
 public:
  /// Opens the folder, which it creates if needed, and reads the videos of earlier servers. A video that was running
  /// waits again, before the others. A damaged record is left alone, with a warning. Throws Error if another server
  /// uses the folder.
  VideoStore(std::filesystem::path folder, KeepRule keep);
  ~VideoStore();
  VideoStore(const VideoStore&) = delete;
  VideoStore& operator=(const VideoStore&) = delete;

  VideoFiles files(const std::string& id) const;
  const std::filesystem::path& folder() const { return folder_; }

  /// Writes the record and lets the video wait. Returns false, and does nothing, if `most` videos already wait. Throws
  /// Error if the record cannot be written.
  bool add(VideoRecord record, size_t most);
  std::optional<VideoRecord> find(const std::string& id) const;
  /// Returns the object that clients get for a video; null if there is no such video.
  nlohmann::json object(const std::string& id) const;
  /// Returns at most `limit` videos that follow `after` in the list, newest first unless `ascending`. The list starts
  /// at its beginning if `after` is empty. Returns nothing if `after` is unknown.
  std::optional<VideoPage> list(const std::string& after, size_t limit, bool ascending) const;
  /// Returns the objects of all videos that run or wait, running ones first.
  std::vector<nlohmann::json> unfinished() const;
  size_t waiting() const;
  /// Returns the first `most` videos that wait, in their order.
  std::vector<std::string> queue(size_t most) const;
  std::map<VideoState, size_t> counts() const;

  /// A video fails after this many attempts in which the server, or the process of a GPU, ended.
  static constexpr int64_t kMostAttempts = 3;
  /// Takes the next video from the queue and marks it as running. Returns nothing if none waits. Counts this attempt;
  /// if the last attempt saved a checkpoint, the count begins again.
  std::optional<VideoRecord> begin_next();
  /// Sets the attempts of a running video to 0, because this server shuts down normally. The next server continues it.
  void pause(const std::string& id);
  /// Puts a running video whose process has ended back at the front of the queue.
  void wait_again(const std::string& id);
  /// Changes a running video's progress, in memory only.
  void progress(const std::string& id, const std::function<void(VideoRecord&)>& change);
  /// Ends a video as completed. Throws Error if the record cannot be written.
  void complete(const std::string& id, const nlohmann::json& recipe);
  /// Ends a video as failed. If the record cannot be written, the video fails in memory only.
  void fail(const std::string& id, const std::string& code, const std::string& message);
  /// Ends a video as cancelled if it waits. Returns false if it does not wait.
  bool cancel_waiting(const std::string& id);
  /// Removes a video that does not run, with its files. Returns false if it runs or does not exist.
  bool remove(const std::string& id);
  /// Removes the video's MP4, thumbnail and contact sheet, but not its record.
  void remove_content(const std::string& id) const;
  /// Removes the checkpoint and the latents of a video.
  void remove_unfinished(const std::string& id) const;
  /// Removes the oldest finished videos, so that the others meet the rule's limits. Keeps the newest one even if its
  /// bytes alone exceed the limit. Returns the ids of removed videos.
  std::vector<std::string> remove_old();

 private:
  void lock_folder();
  void read_folder();
  void write(const VideoRecord& record, const nlohmann::json& recipe, bool flushes_folder = true) const;
  nlohmann::json recipe_of(const VideoRecord& record) const;
  VideoPlace place_of(const VideoRecord& record) const;
  void remove_leftovers() const;
  void remove_half_written(const std::string& id) const;
  void write_if_possible(const VideoRecord& record) const;
  bool has_checkpoint_since(const VideoRecord& record) const;
  void fail_locked(const std::string& id, const std::string& code, const std::string& message);
  void remove_files(const VideoRecord& record) const;
  std::map<std::string, uint64_t> bytes_by_id() const;

  const std::filesystem::path folder_;
  const KeepRule keep_;
  int lock_ = -1;
  mutable std::mutex mutex_;
  std::map<std::string, VideoRecord> videos_;  // by id
  std::map<int64_t, std::string> by_order_;
  std::deque<std::string> queue_;  // waiting videos, the next one first
};

}  // namespace sparsereel::app::serve
