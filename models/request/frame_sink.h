// Receives a video's sound and its frames while they are being decoded.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/request/sound.h"
#include "models/request/video_shape.h"

namespace sparsereel::models {

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// Returns the dtype that take() wants: fp32 in 0..1, or bytes, rounded to nearest.
  virtual at::ScalarType dtype() const = 0;
  /// Takes the video's sound, if it has one. This call comes before begin().
  virtual void take_sound(const Sound& /*sound*/) {}
  /// Announces the frames that follow. A second call means that decoding ran out of memory and starts again; discard
  /// the frames taken before it.
  virtual void begin(const VideoShape& shape, bool tiled) = 0;
  /// Takes the next frames: CPU, contiguous [f, H, W, 3]. An exception ends the decoding.
  virtual void take(const at::Tensor& frames) = 0;
};

}  // namespace sparsereel::models
