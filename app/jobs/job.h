// Makes videos one after the other: text, denoising, decoding, files. `generate` makes the videos of one prompt, and
// `batch` the videos of a set.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
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
#include "app/jobs/kept_texts.h"
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
  KeptLatents& latents;  // JobUser::written() must call check()
  std::chrono::steady_clock::time_point write_start;
};

/// Returns the fields that reports and manifests share, as JSON: recipe, warnings (first `told`, from before the work,
/// then the warnings of the work), preset, cache and the step that the run resumed from.
nlohmann::json made_report(const VideoTask& video, const Made& made, const std::vector<std::string>& told);

/// The command that uses a job. The job calls these functions to report its progress.
class JobUser {
 public:
  virtual ~JobUser() = default;
  /// Returns the observer of the video's steps, pieces and stages. In addition to the pipeline's stages there are the
  /// stages "image", "text" (one step per text) and "write". The job itself handles frames, latents and checkpoints.
  virtual models::RunObserver& observer() = 0;
  virtual void begin(const VideoTask&) {}  // called before the video is denoised
  virtual void warn(const VideoTask&, const std::string& warning) = 0;
  virtual void kept_checkpoint(const VideoTask&, int64_t /*step*/) {}
  virtual void kept_latents(const VideoTask&, const std::filesystem::path&) {}
  virtual void written(const VideoTask&,
                       const Made&) = 0;  // called by the thread that writes; may throw as writing does
  /// Called by the thread that writes, for each video that run() has rendered: its files are in place, or `failure`
  /// says why it has none. `warnings` are those of decoding and writing; what is left in it is passed to warn() later.
  virtual void ended(const VideoTask&, const std::exception_ptr& /*failure*/, std::vector<std::string>& /*warnings*/) {}
  virtual void done(const VideoTask&) {}    // after written()
  virtual void failed(const VideoTask&) {}  // called only if the job goes on with the other videos
};

/// Runs `part`. Returns its error, or nothing if it succeeded. Rethrows Cancelled, and errors that would make every
/// other video fail too.
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

/// Limits the encoded texts that wait for their videos. Texts beyond the limit are encoded in another round, so that
/// the first video does not wait for the last text. Loading the encoder again costs little compared with the videos.
struct TextLimit {
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  double seconds =
      std::numeric_limits<double>::infinity();  // encoding time of a round; at least twice the loading time
};

/// How a job treats its videos. By default, no model stays loaded, because a loaded transformer might force the decoder
/// to work in tiles. By default, a failure is thrown. A cancelled video keeps its finished steps, and the next job
/// resumes from them.
struct JobPolicy {
  bool keep_loaded = false;  // keep transformer and decoder for the next video, and the text encoder if memory suffices
  bool write_behind = false;           // write a video while the next one is denoised
  bool go_on_after_failure = false;    // a failed video does not stop the others
  bool go_on_after_full_disk = false;  // the same for a video that is not written because the disk is full or broken
  bool keep_last = false;    // keep the state after the last step even without --checkpoint-every, so that a killed run
                             // resumes at decoding
  bool keep_latents = true;  // keep the latents in a file until the video is written, even without --save-latents
  std::function<World*()> world = {};  // returns the ranks that make a video together; null or unset for one rank
  TextLimit texts = {};
  KeptTexts* kept_texts = nullptr;  // texts of earlier jobs with the same pipeline; null to encode every text
};

class Job {
 public:
  /// `cancelled` is polled between texts and steps; true ends the job.
  Job(JobUser& user, std::function<bool()> cancelled, const JobPolicy& policy = {})
      : user_(user), cancelled_(std::move(cancelled)), policy_(policy) {}

  /// Checks the weights, encodes the texts (equal texts once) and loads what stays loaded. The videos must be resolved.
  /// Returns how many of the first videos are ready for run(): as many as TextLimit allows.
  size_t load(std::span<VideoTask* const> videos, models::Pipeline& pipeline);
  /// Makes the videos for which load() has encoded the texts. With write_behind the last video may not be finished yet:
  /// call collect(). Throws models::DiskError if the disk is full or broken, and models::Cancelled. Before it throws,
  /// it finishes writing the previous video.
  void run(std::span<VideoTask* const> videos, models::Pipeline& pipeline);
  /// Waits until the video that is being written is finished.
  void collect();
  bool writes() const { return written_.valid(); }
  /// Waits until collect() would not wait, but not longer than `most`. Returns false if it would still wait.
  bool can_collect(std::chrono::milliseconds most) const;

 private:
  struct Written {
    VideoTask* video;
    std::vector<std::string> warnings;  // not yet passed to user_
  };

  struct Texts {
    std::map<std::string, const VideoTask*> encoded;  // first video by models::text_key(); null if encoding failed
    uint64_t bytes = 0;
  };

  size_t load_all(std::span<VideoTask* const> videos, models::Pipeline& pipeline);
  template <typename Part>
  std::optional<Error> attempt(const Part& part) const;
  void fail(VideoTask& video, const Error& error, const std::filesystem::path& latents);
  void warn(VideoTask& video, const std::string& warning);
  void settle_memory(std::span<VideoTask* const> videos, models::Pipeline& pipeline);
  size_t encode_images(std::span<VideoTask* const> videos, models::Pipeline& pipeline);
  size_t encode(std::span<VideoTask* const> videos, models::Pipeline& pipeline);
  void encode(VideoTask& video, Texts& texts, models::Pipeline& pipeline);
  void make(VideoTask& video, models::Pipeline& pipeline);
  /// The files of a video while it is being made.
  struct Files {
    Files(KeptLatents kept, FrameWriter::Text text, const RunOptions& run)
        : latents(std::move(kept)), frames(run, std::move(text)) {}

    KeptLatents latents;
    FrameWriter frames;
  };
  std::shared_ptr<Files> files_of(VideoTask& video) const;
  models::Outcome render(VideoTask& video, models::Pipeline& pipeline, Files& files);
  /// Saves to disk what the run of a video produces.
  class Keeper;
  bool keeps_last(const VideoTask& video) const;
  bool knows_texts(std::span<VideoTask* const> videos) const;
  void use_checkpoint(VideoTask& video, models::Inputs& inputs);
  Written finish(VideoTask& video, const models::Outcome& result, Files& files);
  std::optional<Error> write_failure(const std::exception_ptr& failure);
  std::vector<std::string> finish_files(VideoTask& video, const models::Outcome& result, Files& files);

  JobUser& user_;
  std::function<bool()> cancelled_;
  JobPolicy policy_;
  std::atomic<bool> write_failed_ = false;
  std::future<Written> written_;  // last member: its destructor waits for work that uses the other members
};

}  // namespace sparsereel::app
