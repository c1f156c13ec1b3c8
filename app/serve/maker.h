// Makes a server's videos one at a time, with a model that stays loaded: in this process (local_maker.h), or in a
// process of its own for each GPU (process_maker.h).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/serve/record.h"
#include "hilbert/error.h"

namespace sparsereel::app::serve {

struct MadeVideo;

/// A maker calls this to report how far its videos are and how they end. stage(), step(), decoded() and preview()
/// concern the video that make() is making, and are called before make() returns.
class MakingObserver {
 public:
  virtual ~MakingObserver() = default;
  /// `name`: "text", "image", "steps" or "decode".
  virtual void stage(const std::string& name) = 0;
  /// A denoising step is done. `step` counts from 1.
  virtual void step(int64_t step, int64_t steps, double seconds) = 0;
  /// `share` of the frames, from 0 to 1, is decoded.
  virtual void decoded(double share) = 0;
  /// `png` holds the bytes of a file. May be called from another thread.
  virtual void preview(int64_t step, std::string png) = 0;
  virtual void warn(const std::string& id, const std::string& warning) = 0;
  /// The video has its files, or `made` says why it has none. Called once for each video that make() was called for,
  /// unless the maker is lost. May be called after make() has returned, and from another thread.
  virtual void ended(const std::string& id, const MadeVideo& made) = 0;
};

/// How a video ended.
struct MadeVideo {
  nlohmann::json recipe = {};         // of a completed video
  double decode_seconds = 0;          // of a completed video
  double write_seconds = 0;           // of a completed video: from its last frame to its last file
  std::string code = {};              // why there is no video, as clients read it; empty if the video is completed
  std::optional<Error> failure = {};  // set if `code` is not empty

  bool is_cancelled() const { return code == "cancelled"; }
};

/// Returns how `make` ended: what it returns, or the error that it throws.
MadeVideo outcome_of(const std::function<MadeVideo()>& make);

/// The process that makes videos has ended or does not answer. It is not known whether the video caused that.
class MakerLost : public Error {
 public:
  using Error::Error;
};

class Maker {
 public:
  virtual ~Maker() = default;
  /// Opens the model and checks that its weights are complete. Call it first. Throws Error if that fails. `observer`
  /// must outlive this object.
  virtual void open(MakingObserver& observer) = 0;
  /// Makes the video. Returns when the next video may begin. This video's files may not be complete by then, but the
  /// video before it has ended. If `cancelled` returns true, saves the finished steps and ends the video as cancelled.
  /// Throws MakerLost if this maker can make no more videos.
  virtual void make(const VideoRecord& record, const std::function<bool()>& cancelled) = 0;
  /// Waits until all videos have ended, or until `enough`, which is polled, returns true. Returns true if all videos
  /// have ended. Throws MakerLost.
  virtual bool collect(const std::function<bool()>& enough) = 0;
  /// Returns false if this maker can make no more videos.
  virtual bool is_alive() = 0;
};

}  // namespace sparsereel::app::serve
