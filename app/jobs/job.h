// Makes videos one after the other: text, denoising, decoding, files. `generate` makes those of a prompt, `batch` a
// set's.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/jobs/frame_writer.h"
#include "app/jobs/video.h"
#include "app/jobs/write.h"
#include "models/engine/failure.h"
#include "models/files/atomic_file.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::app {

class World;

/// The files of a video that was just made.
struct Made {
  const models::Outcome& result;
  const WrittenVideo& file;
  KeptLatents& latents;  // to check()
  std::chrono::steady_clock::time_point write_start;
};

/// What reports and manifests say alike: recipe, warnings (`told` before the work, and of it), preset, cache, and where
/// it was gone on from.
nlohmann::json made_report(const Video& video, const Made& made, const std::vector<std::string>& told);

/// The command that a job tells how it goes.
class JobUser {
 public:
  virtual ~JobUser() = default;
  /// Who hears of the video: its stages ("image", "text" and "write" around those of the pipeline; each text is a step
  /// of "text"), steps and pieces. Frames, latents and checkpoints are the job's own.
  virtual models::RunObserver& observer() = 0;
  virtual void begin(const Video&) {}  // before its denoising
  virtual void warn(const Video&, const std::string& warning) = 0;
  virtual void kept_checkpoint(const Video&, int64_t /*step*/) {}
  virtual void kept_latents(const Video&, const std::filesystem::path&) {}
  virtual void written(const Video&, const Made&) = 0;  // in the thread that writes; may throw as writing does
  virtual void done(const Video&) {}                    // after that
  virtual void failed(const Video&) {}                  // where others go on
};

/// Why `part` failed, where that concerns its videos alone; nothing where it did not. What would fail for all videos,
/// and Cancelled, is thrown on.
template <typename Part>
std::optional<Error> failure_of_part(const Part& part) {
  try {
    part();
  } catch (const models::Cancelled&) {
    throw;
  } catch (const models::WorkStopped&) {
    throw;
  } catch (const models::DiskError&) {
    throw;
  } catch (...) {
    return models::as_error(std::current_exception());
  }
  return std::nullopt;
}

/// How much text may wait for its turn. The encoder comes back for the rest: loading it again costs little beside so
/// many videos, and the first one does not wait for the last one's text.
struct TextLimit {
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  double seconds = std::numeric_limits<double>::infinity();  // of encoding, or twice the loading where that is more
};

/// How a job treats its videos. Without any of it each is made as if alone (a denoiser that stayed might make the
/// decoder work in tiles), and a failure is thrown. A video that is cancelled keeps the steps that are done, and the
/// next job goes on from them.
struct JobPolicy {
  bool keep_loaded = false;            // denoiser and decoder, from video to video
  bool write_behind = false;           // a video is written while the next one is denoised
  bool go_on_after_failure = false;    // one that fails leaves the others alone
  bool keep_last = false;              // the state after the last step too, without --checkpoint-every too: a killed
                                       // run then goes on with its decoding
  std::function<World*()> world = {};  // of the ranks that make a video together; empty, null: this process alone does
  TextLimit texts = {};
};

class Job {
 public:
  /// `cancelled`: polled between texts and steps; true ends the job.
  Job(JobUser& user, std::function<bool()> cancelled, const JobPolicy& policy = {})
      : user_(user), cancelled_(std::move(cancelled)), policy_(policy) {}

  /// Checks the weights, encodes texts, the same ones once, and loads what stays loaded. The videos are resolved.
  /// Returns how many of them, from the first on, are ready for run(): those that TextLimit allows.
  size_t load(std::span<Video* const> videos, models::Pipeline& pipeline);
  /// Makes the videos that load() has encoded; behind, the last one may still be being written: collect(). Throws
  /// models::DiskError where the disk takes no more, and models::Cancelled; the video that was being written is then
  /// finished.
  void run(std::span<Video* const> videos, models::Pipeline& pipeline);
  /// Waits for the video that is being written.
  void collect();
  bool writes() const { return written_.valid(); }

 private:
  struct Written {
    Video* video;
    std::vector<std::string> warnings;  // that were not told yet
  };

  struct Texts {
    std::map<std::string, const Video*> encoded;  // by models::text_key(); null where that failed
    uint64_t bytes = 0;
  };

  size_t load_all(std::span<Video* const> videos, models::Pipeline& pipeline);
  template <typename Part>
  std::optional<Error> attempt(const Part& part) const;
  void fail(Video& video, const Error& error, const std::filesystem::path& latents);
  void warn(Video& video, const std::string& warning);
  size_t encode_images(std::span<Video* const> videos, models::Pipeline& pipeline);
  size_t encode(std::span<Video* const> videos, models::Pipeline& pipeline);
  void encode(Video& video, Texts& texts, models::Pipeline& pipeline);
  void make(Video& video, models::Pipeline& pipeline);
  /// A video's files while it is made.
  struct Files {
    Files(KeptLatents kept, FrameWriter::Text text, const RunOptions& run)
        : latents(std::move(kept)), frames(run, std::move(text)) {}

    KeptLatents latents;
    FrameWriter frames;
  };
  std::shared_ptr<Files> files_of(Video& video) const;
  models::Outcome render(Video& video, models::Pipeline& pipeline, Files& files);
  /// Keeps what a video's run makes on the disk.
  class Keeper;
  bool keeps_last(const Video& video) const;
  void use_checkpoint(Video& video, models::Inputs& inputs);
  Written finish(Video& video, const models::Outcome& result, Files& files);
  std::vector<std::string> finish_files(Video& video, const models::Outcome& result, Files& files);

  JobUser& user_;
  std::function<bool()> cancelled_;
  JobPolicy policy_;
  std::atomic<bool> write_failed_ = false;
  std::future<Written> written_;  // last: it is waited for before the rest goes
};

}  // namespace sparsereel::app
