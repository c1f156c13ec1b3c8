// Keeps records in files, and the queue in memory.
#include "app/serve/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <iostream>

#include "app/jobs/outputs.h"
#include "app/jobs/report.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/files/atomic_file.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"
#include "models/files/temporary.h"

namespace sparsereel::app::serve {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostRecordBytes = uint64_t{64} << 20;
constexpr std::string_view kIdStart = "video_";

/// Returns true for "video_" and 32 hexadecimal digits, as random_name() makes them.
bool is_video_id(std::string_view text) {
  if (!text.starts_with(kIdStart) || text.size() != kIdStart.size() + 32) return false;
  text.remove_prefix(kIdStart.size());
  return std::ranges::all_of(text, [](unsigned char each) { return std::isxdigit(each) != 0; });
}

/// Returns the id of the video for which the server or its job made a file of this name; empty for other names.
std::string video_of_file(const std::string& name) {
  const std::string id = name.substr(0, name.find('.')), rest = name.substr(id.size());
  const bool is_ours = rest == ".json" || rest == ".mp4" || rest == ".thumbnail.png" || rest == ".sheet.png" ||
                       rest.starts_with(".image.") || rest.starts_with(".last_image.") ||
                       rest.starts_with(".mp4.checkpoint") || rest.starts_with(".mp4.latents");
  return is_ours && is_video_id(id) ? id : "";
}

}  // namespace

KeepRule parse_keep_rule(const std::string& text) {
  const size_t end = text.find_first_not_of("0123456789.");
  const auto number = parse_number<double>(text.substr(0, end));
  const std::string unit = end == std::string::npos ? "" : text.substr(end);
  const auto times = [&](double factor) { return *number * factor; };
  if (text.empty()) return {};
  if (number && *number > 0 && *number < 1e6) {
    if (unit == "d") return {.seconds = static_cast<int64_t>(times(86400))};
    if (unit == "h") return {.seconds = static_cast<int64_t>(times(3600))};
    if (unit == "GB") return {.bytes = static_cast<uint64_t>(times(1e9))};
    if (unit == "MB") return {.bytes = static_cast<uint64_t>(times(1e6))};
  }
  throw bad_option("keep", text + " is neither a time nor a size", "give days such as 7d, hours such as 12h, or 20GB");
}

VideoStore::VideoStore(fs::path folder, KeepRule keep) : folder_(fs::absolute(folder)), keep_(keep) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error || !fs::is_directory(folder_))
    throw bad_input("cannot make the folder " + folder_.string() + (error ? ": " + error.message() : ""),
                    "choose another with --output-dir");
  lock_folder();
  read_folder();
}

VideoStore::~VideoStore() {
  close(lock_);
}

void VideoStore::lock_folder() {
  const fs::path path = folder_ / ".serve.lock";
  lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) models::throw_write_failure(path, errno);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0)
    throw bad_input("another server uses the folder " + folder_.string(), "choose another with --output-dir");
}

void VideoStore::read_folder() {
  std::vector<VideoRecord> found;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".json" || !is_video_id(path.stem().string())) continue;
    try {
      VideoRecord record = read_record(models::read_regular_file(path, kMostRecordBytes, "restore it"), path.string());
      if (record.id != path.stem()) throw bad_file(path, "is the record of another video", "remove it");
      found.push_back(std::move(record));
    } catch (const Error& error) {
      std::cerr << "warning: " << error.what() << "; the video is left alone\n";
    }
  }
  remove_leftovers();
  std::ranges::sort(found, {}, &VideoRecord::order);
  for (const VideoState state : {VideoState::in_progress, VideoState::queued})
    for (const VideoRecord& record : found)
      if (record.state == state) queue_.push_back(record.id);
  for (VideoRecord& record : found) {
    if (!record.is_finished()) record.state = VideoState::queued;
    by_order_[record.order] = record.id;
    videos_.emplace(record.id, std::move(record));
  }
}

/// Removes what a killed server left: temporary files, and files of videos that have no record. The latter are pictures
/// that it saved before the record, and files whose record it had already removed.
void VideoStore::remove_leftovers() const {
  std::vector<fs::path> orphans, targets;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string(), target = models::Temporary::target_of(name);
    const std::string id = video_of_file(target.empty() ? name : target);
    if (id.empty()) continue;
    if (!target.empty())
      targets.push_back(folder_ / target);
    else if (!fs::exists(files(id).record, ignored))
      orphans.push_back(entry.path());
  }
  models::remove_leftovers(targets);
  for (const fs::path& file : orphans) fs::remove(file, ignored);
}

/// Removes the temporary files that a process left for this video. Files of living processes stay.
void VideoStore::remove_half_written(const std::string& id) const {
  std::vector<fs::path> targets;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string target = models::Temporary::target_of(entry.path().filename().string());
    if (video_of_file(target) == id) targets.push_back(folder_ / target);
  }
  models::remove_leftovers(targets);
}

VideoFiles files_of_video(const fs::path& folder, const std::string& id) {
  return {.record = folder / (id + ".json"),
          .video = folder / (id + ".mp4"),
          .thumbnail = folder / (id + ".thumbnail.png"),
          .sheet = folder / (id + ".sheet.png")};
}

VideoFiles VideoStore::files(const std::string& id) const {
  return files_of_video(folder_, id);
}

/// `flushes_folder`: see AtomicFile::commit().
void VideoStore::write(const VideoRecord& record, const nlohmann::json& recipe, bool flushes_folder) const {
  const std::string text = dump(record_on_disk(record, recipe), 1) + "\n";
  models::AtomicFile file(files(record.id).record);
  file.write(text.data(), text.size());
  file.commit(flushes_folder);
}

/// Writes a changed record; prints a warning if that fails. Unless the video has ended, the change is not flushed to
/// disk: it outlives this process, but a power failure may undo it.
void VideoStore::write_if_possible(const VideoRecord& record) const {
  try {
    write(record, {}, /*flushes_folder=*/record.is_finished());
  } catch (const Error& error) {
    std::cerr << "warning: " << error.what() << "\n";
  }
}

nlohmann::json VideoStore::recipe_of(const VideoRecord& record) const {
  if (!record.has_recipe) return {};
  try {
    const fs::path path = files(record.id).record;
    const nlohmann::json json = models::parse_json(
        models::read_regular_file(path, kMostRecordBytes, "restore the file"), path.string(), "restore the file");
    return json.is_object() && json.contains("recipe") ? json.at("recipe") : nlohmann::json();
  } catch (const Error&) {  // somebody removed the file; the video may still be there
    return {};
  }
}

VideoPlace VideoStore::place_of(const VideoRecord& record) const {
  VideoPlace place;
  if (record.is_finished() && keep_.seconds > 0) place.expires_at = record.completed_at + keep_.seconds;
  return place;
}

bool VideoStore::add(VideoRecord record, size_t most) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= most) return false;
  record.order = by_order_.empty() ? 1 : by_order_.rbegin()->first + 1;
  write(record, {});
  queue_.push_back(record.id);
  by_order_[record.order] = record.id;
  videos_.emplace(record.id, std::move(record));
  return true;
}

std::optional<VideoRecord> VideoStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = videos_.find(id);
  return found == videos_.end() ? std::nullopt : std::optional(found->second);
}

nlohmann::json VideoStore::object(const std::string& id) const {
  VideoRecord record;
  VideoPlace place;
  {
    const std::lock_guard lock(mutex_);
    const auto found = videos_.find(id);
    if (found == videos_.end()) return {};
    record = found->second;
    place = place_of(record);
    if (record.state == VideoState::queued) place.queue_position = std::ranges::find(queue_, id) - queue_.begin();
  }
  place.recipe = recipe_of(record);  // after the lock is released, because this reads a file
  return video_object(record, place);
}

std::optional<VideoPage> VideoStore::list(const std::string& after, size_t limit, bool ascending) const {
  const std::lock_guard lock(mutex_);
  VideoPage page;
  const auto collect = [&](auto place, auto end) {
    for (; place != end && page.ids.size() < limit; ++place) page.ids.push_back(place->second);
    page.has_more = place != end;
  };
  const auto last = videos_.find(after);
  if (!after.empty() && last == videos_.end()) return std::nullopt;
  const bool is_first = after.empty();
  if (ascending)
    collect(is_first ? by_order_.begin() : by_order_.upper_bound(last->second.order), by_order_.end());
  else
    collect(is_first ? by_order_.rbegin() : std::make_reverse_iterator(by_order_.find(last->second.order)),
            by_order_.rend());
  return page;
}

std::vector<nlohmann::json> VideoStore::unfinished() const {
  const std::lock_guard lock(mutex_);
  std::vector<nlohmann::json> all;
  for (const auto& [id, record] : videos_)
    if (record.state == VideoState::in_progress) all.push_back(video_object(record, place_of(record)));
  int64_t position = 0;
  for (const std::string& id : queue_) {
    VideoPlace place = place_of(videos_.at(id));
    place.queue_position = position++;
    all.push_back(video_object(videos_.at(id), place));
  }
  return all;
}

std::vector<std::string> VideoStore::queue(size_t most) const {
  const std::lock_guard lock(mutex_);
  return {queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(std::min(most, queue_.size()))};
}

size_t VideoStore::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

std::map<VideoState, size_t> VideoStore::counts() const {
  const std::lock_guard lock(mutex_);
  std::map<VideoState, size_t> all;
  for (const auto& [id, record] : videos_) ++all[record.state];
  return all;
}

std::optional<VideoRecord> VideoStore::begin_next() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  VideoRecord& record = videos_.at(queue_.front());
  queue_.pop_front();
  record.is_retry = record.attempts > 0;
  if (record.is_retry && has_checkpoint_since(record)) record.attempts = 0;
  ++record.attempts;
  record.state = VideoState::in_progress;
  record.started_at = unix_now();
  record.progress = {};
  record.warnings.clear();
  write_if_possible(record);  // if the disk is full, the video will fail, and clients learn that
  return record;
}

/// Returns true if the last attempt saved a checkpoint, so that the next attempt gets further.
bool VideoStore::has_checkpoint_since(const VideoRecord& record) const {
  struct stat state {};
  return std::ranges::any_of(files_beside(files(record.id).video, {"checkpoint"}), [&](const fs::path& file) {
    return stat(file.c_str(), &state) == 0 && state.st_mtime >= record.started_at;
  });
}

void VideoStore::pause(const std::string& id) {
  const std::lock_guard lock(mutex_);
  VideoRecord& record = videos_.at(id);
  record.attempts = 0;
  write_if_possible(record);
}

void VideoStore::wait_again(const std::string& id) {
  remove_half_written(id);
  const std::lock_guard lock(mutex_);
  VideoRecord& record = videos_.at(id);
  record.state = VideoState::queued;
  record.progress = {};
  record.preview_step = 0;
  queue_.push_front(id);
  write_if_possible(record);
}

void VideoStore::progress(const std::string& id, const std::function<void(VideoRecord&)>& change) {
  const std::lock_guard lock(mutex_);
  if (const auto found = videos_.find(id); found != videos_.end()) change(found->second);
}

void VideoStore::complete(const std::string& id, const nlohmann::json& recipe) {
  const std::lock_guard lock(mutex_);
  VideoRecord done = videos_.at(id);
  done.state = VideoState::completed;
  done.completed_at = unix_now();
  done.has_recipe = !recipe.is_null();
  write(done, recipe);
  videos_.at(id) = done;
}

void VideoStore::fail(const std::string& id, const std::string& code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  fail_locked(id, code, message);
}

void VideoStore::fail_locked(const std::string& id, const std::string& code, const std::string& message) {
  VideoRecord& record = videos_.at(id);
  std::erase(queue_, id);
  record.state = VideoState::failed;
  record.completed_at = unix_now();
  record.error_code = code;
  record.error = message;
  write_if_possible(record);
}

bool VideoStore::cancel_waiting(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(queue_, id) == queue_.end()) return false;
  fail_locked(id, "cancelled", "the video was cancelled before it began");
  return true;
}

void VideoStore::remove_files(const VideoRecord& record) const {
  std::error_code ignored;
  std::vector<fs::path> own;
  for (const auto& entry : fs::directory_iterator(folder_, ignored))
    if (video_of_file(entry.path().filename().string()) == record.id) own.push_back(entry.path());
  fs::remove(files(record.id).record, ignored);  // first, so that a later server finds no record without its files
  for (const fs::path& file : own) fs::remove(file, ignored);
}

void VideoStore::remove_content(const std::string& id) const {
  const VideoFiles own = files(id);
  std::error_code ignored;
  for (const fs::path& file : {own.video, own.thumbnail, own.sheet}) fs::remove(file, ignored);
}

void VideoStore::remove_unfinished(const std::string& id) const {
  const fs::path video = files(id).video;
  std::error_code ignored;
  for (const char* kind : {"checkpoint", "latents"})
    for (const fs::path& file : files_beside(video, {kind})) fs::remove(file, ignored);
}

std::map<std::string, uint64_t> VideoStore::bytes_by_id() const {
  std::map<std::string, uint64_t> bytes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string id = video_of_file(entry.path().filename().string());
    const uint64_t size = id.empty() ? 0 : fs::file_size(entry.path(), error);
    if (!id.empty() && !error) bytes[id] += size;
  }
  return bytes;
}

bool VideoStore::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = videos_.find(id);
  if (found == videos_.end() || found->second.state == VideoState::in_progress) return false;
  remove_files(found->second);
  std::erase(queue_, id);
  by_order_.erase(found->second.order);
  videos_.erase(found);
  return true;
}

std::vector<std::string> VideoStore::remove_old() {
  std::vector<std::string> old;
  if (keep_.seconds == 0 && keep_.bytes == 0) return old;
  std::map<std::string, uint64_t> sizes = keep_.bytes > 0 ? bytes_by_id() : std::map<std::string, uint64_t>();
  {
    const std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    bool is_newest = true;  // the limit of bytes does not remove the newest, so that its client can fetch it
    for (auto each = by_order_.rbegin(); each != by_order_.rend(); ++each) {  // newest first
      const VideoRecord& record = videos_.at(each->second);
      if (!record.is_finished()) continue;
      bytes += sizes[record.id];
      const bool too_old = keep_.seconds > 0 && record.completed_at + keep_.seconds < unix_now();
      if (too_old || (keep_.bytes > 0 && bytes > keep_.bytes && !is_newest)) old.push_back(record.id);
      is_newest = false;
    }
  }
  for (const std::string& id : old) remove(id);
  return old;
}

}  // namespace sparsereel::app::serve
