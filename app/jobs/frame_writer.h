// Writes a video in a thread of its own, while it is being decoded.
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

/// The outputs of a run: the video and, where asked for, its contact sheet. They are there after finish(), or not at
/// all.
class FrameWriter final : public models::FrameSink {
 public:
  struct Text {
    /// What goes with the video: asked for when decoding begins, by whether it decodes in tiles.
    std::function<std::string(bool tiled)> recipe;
    std::string caption;  // of the contact sheet
  };

  FrameWriter(RunOptions run, Text text) : run_(std::move(run)), text_(std::move(text)) {}
  ~FrameWriter() override { abandon(); }
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;

  at::ScalarType dtype() const override;
  void begin(const models::VideoShape& shape, bool tiled) override;
  /// Throws what writing failed with, be it of frames before these.
  void take(const at::Tensor& frames) override;
  /// After the last frame: waits for the files. Throws likewise.
  WrittenVideo finish();

 private:
  void abandon();
  void work(const models::VideoShape& shape, const std::string& recipe);
  void write(const models::VideoShape& shape, const std::string& recipe);

  const RunOptions run_;
  const Text text_;
  std::unique_ptr<PieceQueue> queue_;
  std::thread thread_;
  std::exception_ptr failure_;  // here and below: the thread's, until it has ended
  WrittenVideo written_;
};

}  // namespace sparsereel::app
