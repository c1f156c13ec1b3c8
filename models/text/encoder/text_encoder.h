// What the pipeline knows of a text encoder, whatever its class.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  /// ids int64 [B, L] -> hidden states [B, L, C] in the weights' dtype. Every token is attended to. Throws Error on ids
  /// from vocab_size() on.
  virtual at::Tensor forward(const at::Tensor& ids) const = 0;
  virtual int64_t vocab_size() const = 0;
  /// All weights, wherever they wait.
  virtual uint64_t weight_bytes() const = 0;
  /// Bytes on the device where layers are read one at a time: the largest layer, and all that is no layer's.
  virtual uint64_t streamed_bytes() const { return weight_bytes(); }
  /// Whether weights that their files have packed or in 8 bits were rounded to 8 bits, a second time.
  virtual bool rounds_again() const { return false; }
};

}  // namespace sparsereel::models
