// A video that a client asked for: the values of the request, how far the video is, and how it ended.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sparsereel::app::serve {

enum class VideoState { queued, in_progress, completed, failed };

/// Returns "queued", "in_progress", "completed" or "failed".
const char* name_of(VideoState state);

/// How far a running video is. It is not kept on disk.
struct VideoProgress {
  std::string stage = {};       // "text", "image", "steps" or "decode"; empty before the first stage
  int64_t step = 0, steps = 0;  // numbers of finished denoising steps, and of all
  double stage_share = 0;       // finished share of the stage "decode"
  double eta = -1;              // seconds that are left, by estimate; below 0 if unknown

  /// Returns 0 to 99.
  int percent() const;
};

struct VideoRecord {
  std::string id, model;
  std::map<std::string, std::string> values;  // values of the request, by option key
  std::string image, last_image;              // files of the pictures in the store; empty if none
  int64_t attempts = 0;   // attempts since its last checkpoint; a server that shuts down normally sets them to 0
  bool is_retry = false;  // true if an earlier attempt ended with its server or process; not kept on disk
  int64_t order = 0;      // the video's number in its store; earlier videos have smaller numbers
  VideoState state = VideoState::queued;
  int64_t created_at = 0, started_at = 0, completed_at = 0;  // Unix seconds; 0 if not yet
  double seconds = 0;                       // length of the video that is made, which may differ from the requested one
  int64_t width = 0, height = 0;            // pixels
  std::string error_code = {}, error = {};  // of a failed video
  std::vector<std::string> warnings = {};   // of a video that has begun
  bool has_recipe = false;                  // true if the record's file also holds the recipe
  int64_t preview_step = 0;                 // step of the newest preview; 0 if none
  VideoProgress progress = {};

  bool is_finished() const { return state == VideoState::completed || state == VideoState::failed; }
};

/// Facts about a video that clients get in addition to its record.
struct VideoPlace {
  std::optional<int64_t> queue_position = {};  // 0 for the video that begins next; empty if it does not wait
  nlohmann::json recipe = {};                  // null if there is none
  int64_t expires_at = 0;                      // Unix seconds; 0 if --keep sets no time
};

/// Returns the object that clients get.
nlohmann::json video_object(const VideoRecord& record, const VideoPlace& place);

/// Returns the record as it is kept on disk.
nlohmann::json record_on_disk(const VideoRecord& record, const nlohmann::json& recipe);
/// Reads the text of record_on_disk(). Throws Error naming the file if the text is no record.
VideoRecord read_record(const std::string& text, const std::string& file);

int64_t unix_now();

}  // namespace sparsereel::app::serve
