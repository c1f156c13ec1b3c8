// The interface through which the pipeline uses a text encoder of any class.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/text/encoder/text_vision.h"

namespace sparsereel::models {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  /// Returns the hidden states [B, L, C] of token ids int64 [B, L], in the weights' dtype. Every token is attended to.
  /// Throws Error for ids of vocab_size() or more.
  virtual at::Tensor forward(const at::Tensor& ids) const = 0;
  /// Does the same as forward() for ids [1, L] of a text with pictures. The text's tokens that stand for a picture are
  /// replaced by TextPicture::tokens. `pictures` are in the text's order, from a TextVision of the same model. Throws
  /// Error for an encoder that sees no pictures, and for pictures outside the text or of another width.
  virtual at::Tensor forward_with(const at::Tensor& ids, const std::vector<TextPicture>& pictures) const;
  virtual int64_t vocab_size() const = 0;
  /// Returns the bytes of all weights, wherever they are kept.
  virtual uint64_t weight_bytes() const = 0;
  /// Returns the bytes on the device if layers are read one at a time: the largest layer, and everything outside of
  /// layers.
  virtual uint64_t streamed_bytes() const { return weight_bytes(); }
  /// Returns true if weights that are packed or 8-bit in their files were rounded to 8 bits again.
  virtual bool rounds_again() const { return false; }
};

}  // namespace sparsereel::models
