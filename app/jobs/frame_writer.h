// Writes a video in its own thread while it is being decoded.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "app/jobs/piece_queue.h"
#include "app/media/video.h"
#include "app/options/options.h"
#include "models/request/frame_sink.h"

namespace sparsereel::app {

/// Writes the outputs of a run: the video with its sound and, if requested, its contact sheet and thumbnail. The files
/// exist only after finish().
class FrameWriter final : public models::FrameSink {
 public:
  struct Text {
    /// Returns the recipe to store with the video. Called when decoding begins; `tiled` is true if the video is decoded
    /// in tiles.
    std::function<std::string(bool tiled)> recipe;
    std::string caption;  // caption of the contact sheet
  };

  FrameWriter(RunOptions run, Text text) : run_(std::move(run)), text_(std::move(text)) {}
  ~FrameWriter() override { abandon(); }
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;

  at::ScalarType dtype() const override;
  /// Keeps the sound until begin() opens the files, unless the run wants none.
  void take_sound(const models::Sound& sound) override;
  void begin(const models::VideoShape& shape, bool tiled) override;
  /// Queues frames. If writing earlier frames failed, throws that error.
  void take(const at::Tensor& frames) override;
  /// Waits until the files are written. Call it after the last frame. If writing failed, throws that error.
  WrittenVideo finish();

 private:
  void abandon();
  /// The facts that the thread gets when it begins.
  struct Start {
    models::VideoShape shape;
    models::Sound sound;
    std::string recipe;
  };
  void work(const Start& start);
  void write(const Start& start);

  const RunOptions run_;
  const Text text_;
  models::Sound sound_;
  std::unique_ptr<PieceQueue> queue_;
  std::thread thread_;
  std::exception_ptr failure_;  // failure_ and written_ belong to the thread until it has ended
  WrittenVideo written_;
};

}  // namespace sparsereel::app
