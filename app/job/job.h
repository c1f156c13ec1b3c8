// Makes videos one after the other: text, denoising, decoding, files. `generate` makes those of a prompt, `batch` a
// set's.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "app/job/progress.h"
#include "app/job/video.h"
#include "app/job/write.h"
#include "models/engine/failure.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {

/// The files of a video that was just made.
struct Made {
  const models::GenerateResult& result;
  const WrittenVideo& file;
  KeptLatents& latents;  // to check()
  std::chrono::steady_clock::time_point write_start;
};

/// The command that a job tells how it goes.
class JobUser {
 public:
  virtual ~JobUser() = default;
  virtual void begin(const Video&) {}  // before its denoising
  virtual void warn(const Video&, const std::string& warning) = 0;
  virtual void kept_checkpoint(const Video&, int64_t /*step*/) {}
  virtual void kept_latents(const Video&, const std::filesystem::path&) {}
  virtual void written(const Video&, const Made&) = 0;  // in the thread that writes; may throw as writing does
  virtual void done(const Video&) {}                    // after that
  virtual void failed(const Video&) {}                  // of a set
};

/// Why `part` failed, where that concerns its videos alone; nothing where it did not. What would fail for all videos,
/// and Cancelled, is thrown on.
template <typename Part>
std::optional<Error> failure_of_part(const Part& part) {
  try {
    part();
  } catch (const models::Cancelled&) {
    throw;
  } catch (const models::DiskError&) {
    throw;
  } catch (...) {
    return models::as_error(std::current_exception());
  }
  return std::nullopt;
}

/// How much text a set may keep waiting for its turn: the encoder comes back for the rest. Loading it again costs
/// little beside so many videos, and the first one does not wait for the last one's text.
struct TextLimit {
  uint64_t bytes = uint64_t{512} << 20;
  double seconds = 2;  // of encoding, or twice what the loading took where that is more
};

class Job {
 public:
  /// Of a set, denoiser and decoder stay loaded, a video is written while the next one is denoised, one that fails
  /// leaves the others alone, and what a killed run had denoised is used without --checkpoint-every too. Else each
  /// video is made as if alone (a denoiser that stayed might make the decoder work in tiles), and a failure is thrown.
  Job(JobUser& user, Progress& progress, bool set, TextLimit limit = {})
      : user_(user), progress_(progress), set_(set), limit_(limit) {}

  /// Checks the weights, encodes texts, the same ones once, and loads what stays loaded. The videos are resolved.
  /// Returns how many of them, from the first on, are ready for run(): of a set those that TextLimit allows, else all.
  size_t load(std::span<Video* const> videos, models::Pipeline& pipeline);
  /// Makes the videos that load() has encoded. Throws models::DiskError where the disk takes no more, and
  /// models::Cancelled; the video that was being written is then finished.
  void run(std::span<Video* const> videos, models::Pipeline& pipeline);
  /// Waits for the video that is being written.
  void collect();
  bool writes() const { return written_.valid(); }

 private:
  struct Written {
    Video* video;
    std::vector<std::string> warnings;  // that were not told yet
  };

  using TextKey = std::tuple<std::string, std::string, int64_t, bool>;  // what pipelines make one text of
  struct Texts {
    std::map<TextKey, const Video*> encoded;  // null where that failed
    uint64_t bytes = 0;
  };

  template <typename Part>
  std::optional<Error> attempt(const Part& part) const;
  void fail(Video& video, const Error& error, const std::filesystem::path& latents);
  void warn(Video& video, const std::string& warning);
  static TextKey key_of(const Video& video);
  size_t encode(std::span<Video* const> videos, models::Pipeline& pipeline);
  void encode(Video& video, Texts& texts, models::Pipeline& pipeline);
  void make(Video& video, models::Pipeline& pipeline);
  models::GenerateResult render(Video& video, models::Pipeline& pipeline, KeptLatents& kept);
  models::GenerateObserver observe(Video& video, KeptLatents& kept);
  void use_checkpoints(Video& video, models::GenerateRequest& request, models::GenerateObserver& observer);
  Written write(Video& video, const models::GenerateResult& result, KeptLatents& kept);
  std::vector<std::string> write_files(Video& video, const models::GenerateResult& result, KeptLatents& kept);

  JobUser& user_;
  Progress& progress_;
  bool set_;
  TextLimit limit_;
  std::atomic<bool> write_failed_ = false;
  std::future<Written> written_;  // last: it is waited for before the rest goes
};

}  // namespace sparsereel::app
