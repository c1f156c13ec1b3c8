// Copies decoded frames to the host, and finds defects of finished videos that cause no error.
#pragma once

#include <c10/core/Event.h>

#include <optional>
#include <string>
#include <vector>

#include "models/request/frame_sink.h"
#include "models/request/outcome.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// Collects facts about frames. Reads nothing from the device before facts() is called.
class FrameWatch {
 public:
  /// Adds the next frames: fp32 [f, H, W, 3] in 0..1, on any device.
  void add(const at::Tensor& frames);
  /// Returns the facts about all frames so far. At least one frame must have been added.
  FrameFacts facts() const;

 private:
  VideoShape shape_;
  at::Tensor first_;
  std::vector<at::Tensor> largest_, colors_;  // one for each call of add()
};

/// Hands decoded frames to a sink. A GPU goes on decoding while frames are copied to the host; the sink gets them when
/// the next frames are added.
class FrameDelivery {
 public:
  explicit FrameDelivery(FrameSink& sink) : sink_(sink) {}
  /// Adds the next frames, [1, 3, f, H, W] in about [-1, 1], on any device.
  void add(const at::Tensor& frames);
  /// Delivers the last frames and returns the facts about all frames.
  FrameFacts finish();

 private:
  void deliver();

  FrameSink& sink_;
  FrameWatch watch_;
  at::Tensor copied_;                // frames on their way to the host; undefined if there are none
  std::optional<c10::Event> there_;  // the GPU reaches this event when copied_ is on the host; unset on a CPU
};

/// Converts [1, 3, f, H, W] in about [-1, 1] to fp32 [f, H, W, 3] in 0..1 on the same device.
at::Tensor shown_frames(const at::Tensor& frames);

/// Returns an uninitialized tensor in host memory, with the shape and dtype of `like`. Its memory is page-locked if the
/// system has such memory, so that the host need not wait for a copy from the GPU.
at::Tensor host_memory(const at::Tensor& like);

/// Throws Error if frames decoded in `dtype` hold NaN.
void check_numbers(const FrameFacts& frames, at::ScalarType dtype);

/// Returns "is black" if no value reaches 2/255, or an empty string if nothing is wrong.
std::string defect(const FrameFacts& frames);

std::string nan_remedy(at::ScalarType dtype);

/// Returns a warning if the decoder will make another number of frames than the request asks for.
std::string frame_count_warning(const Plan& plan, const ModelSpec& spec);

/// Returns a warning if the model was not made for the plan's size or length; otherwise an empty text.
std::string unusual_size_warning(const Plan& plan, const ModelSpec& spec);

}  // namespace sparsereel::models
