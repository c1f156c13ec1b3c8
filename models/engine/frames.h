// Copies decoded frames to the host, and finds defects of finished videos that cause no error.
#pragma once

#include <c10/core/Event.h>

#include <optional>
#include <string>
#include <vector>

#include "models/request/frame_sink.h"
#include "models/request/outcome.h"
#include "models/request/plan.h"

namespace sparsereel::models {

/// Collects facts about frames. Reads nothing from the device before facts() is called.
class FrameWatch {
 public:
  /// Adds the next frames: fp32 [f, H, W, 3] in 0..1, on any device.
  void add(const at::Tensor& frames);
  /// At least one frame must have been added.
  FrameFacts facts() const;

 private:
  VideoShape shape_;
  at::Tensor first_;
  std::vector<at::Tensor> largest_, colors_;  // one for each call of add()
};

/// Hands decoded frames to a sink. A GPU goes on decoding while a piece is copied; the sink gets it when the next one
/// comes.
class FrameDelivery {
 public:
  explicit FrameDelivery(FrameSink& sink) : sink_(sink) {}
  /// Adds the next frames: [1, 3, f, H, W] in about [-1, 1].
  void add(const at::Tensor& frames);
  /// Delivers the last frames.
  FrameFacts finish();

 private:
  void deliver();

  FrameSink& sink_;
  FrameWatch watch_;
  at::Tensor copied_;                // a piece on its way to the host; undefined if there is none
  std::optional<c10::Event> there_;  // its arrival; none on a CPU
};

/// Converts [1, 3, f, H, W] in about [-1, 1] to fp32 [f, H, W, 3] in 0..1 on the same device.
at::Tensor shown_frames(const at::Tensor& frames);

/// Throws Error if frames decoded in `dtype` hold NaN.
void check_numbers(const FrameFacts& frames, at::ScalarType dtype);

/// Returns "is black" if no value reaches 2/255; empty if nothing is wrong.
std::string defect(const FrameFacts& frames);

std::string nan_remedy(at::ScalarType dtype);

/// Warns if the decoder will make another number of frames than asked for.
std::string frame_count_warning(const Plan& plan, const ModelSpec& spec);

}  // namespace sparsereel::models
