// Decoded frames on their way to the host, and what is wrong with a finished video that no error shows.
#pragma once

#include <c10/core/Event.h>

#include <optional>
#include <string>
#include <vector>

#include "models/request/frame_sink.h"
#include "models/request/outcome.h"
#include "models/request/plan.h"

namespace sparsereel::models {

/// Collects the facts of frames that pass, and asks the device for nothing before they are wanted.
class FrameWatch {
 public:
  /// The next frames: fp32 [f, H, W, 3] in 0..1, on any device.
  void add(const at::Tensor& frames);
  /// After at least one frame.
  FrameFacts facts() const;

 private:
  VideoShape shape_;
  at::Tensor first_;
  std::vector<at::Tensor> largest_, colours_;  // of each call
};

/// Hands what a decoder makes to a sink. A GPU goes on decoding while a piece is copied: the sink has it when the next
/// one comes.
class FrameDelivery {
 public:
  explicit FrameDelivery(FrameSink& sink) : sink_(sink) {}
  /// The next frames: [1, 3, f, H, W] in about [-1, 1].
  void add(const at::Tensor& frames);
  /// After the last ones.
  FrameFacts finish();

 private:
  void deliver();

  FrameSink& sink_;
  FrameWatch watch_;
  at::Tensor copied_;                // undefined: none is on its way
  std::optional<c10::Event> there_;  // when it has arrived; none on a CPU
};

/// frames [1, 3, f, H, W] in about [-1, 1] -> fp32 [f, H, W, 3] in 0..1, where they are.
at::Tensor shown_frames(const at::Tensor& frames);

/// Throws Error where frames decoded in `dtype` hold NaN.
void check_numbers(const FrameFacts& frames, at::ScalarType dtype);

/// "is black" (no value reaches 2/255); empty where nothing is wrong.
std::string defect(const FrameFacts& frames);

/// What to do about NaN and Inf in a run of this dtype.
std::string nan_remedy(at::ScalarType dtype);

/// That the decoder will make another number of frames than is asked for; empty where it will not.
std::string frame_count_warning(const Plan& plan, const ModelSpec& spec);

}  // namespace sparsereel::models
