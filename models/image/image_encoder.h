// What the pipeline knows of an image encoder, whatever its class.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;

  /// pixels [B, 3, size, size], prepared as encoder_pixels() does, of any dtype -> tokens [B, N, C] in the weights'
  /// dtype. Throws Error on another size.
  virtual at::Tensor forward(const at::Tensor& pixels) const = 0;
  virtual int64_t image_size() const = 0;
  /// Tokens of an image (N), and their channels (C).
  virtual int64_t tokens() const = 0;
  virtual int64_t width() const = 0;
  virtual uint64_t weight_bytes() const = 0;
  /// Whether weights that their files have packed or in 8 bits were rounded to 8 bits, a second time.
  virtual bool rounds_again() const { return false; }
};

}  // namespace sparsereel::models
