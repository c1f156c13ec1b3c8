// The interface of image encoders that the pipeline uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;

  /// Encodes pixels [B, 3, size, size] of any dtype, prepared by encoder_pixels(). Returns tokens [B, N, C] in the
  /// weights' dtype. Throws Error for another size.
  virtual at::Tensor forward(const at::Tensor& pixels) const = 0;
  virtual int64_t image_size() const = 0;
  /// tokens() returns N, the number of an image's tokens; width() returns C, the number of their channels.
  virtual int64_t tokens() const = 0;
  virtual int64_t width() const = 0;
  virtual uint64_t weight_bytes() const = 0;
  /// Returns true if loading has rounded weights to 8 bits although the file already held them packed or in 8 bits.
  virtual bool rounds_again() const { return false; }
};

}  // namespace sparsereel::models
