// Who takes a video's frames while it is being decoded.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/request/video_shape.h"

namespace sparsereel::models {

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// What frames are made of: fp32 in 0..1, or bytes, rounded to nearest.
  virtual at::ScalarType dtype() const = 0;
  /// Frames are to come. For the second time where decoding ran out of memory and is done again: those before do not
  /// count.
  virtual void begin(const VideoShape& shape, bool tiled) = 0;
  /// The next ones: CPU, contiguous [f, H, W, 3]. What it throws ends the decoding.
  virtual void take(const at::Tensor& frames) = 0;
};

}  // namespace sparsereel::models
