// The interface of a text encoder to the pipeline, for any class.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  /// Returns the hidden states [B, L, C] of token ids int64 [B, L], in the weights' dtype. Every token is attended to.
  /// Throws Error for ids of vocab_size() or more.
  virtual at::Tensor forward(const at::Tensor& ids) const = 0;
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
