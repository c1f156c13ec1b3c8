// The vectors of norms and of adaptive modulation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/layers/parameters.h"

namespace sparsereel::models {

/// A norm's weight and bias, [channels] each; undefined if the norm does not have it.
struct Norm {
  at::Tensor weight, bias;
  bool rms = false;  // true for an RMS norm, which subtracts no mean (Zhang and Sennrich, arXiv 1910.07467)

  /// Lists `name`.weight and, unless this is an RMS norm, `name`.bias. If `fp32` is true, these vectors are fp32 in a
  /// run of any dtype.
  void weights(const Visit& visit, const std::string& name, int64_t channels, bool fp32 = false);
};

/// The modulation vectors (adaLN; Peebles and Xie, arXiv 2212.09748) of the video tokens or of the text tokens of a
/// sequence.
struct Modulation {
  // [R, C] each, where R is the number of sets of vectors; JointModulation tells which set a token uses.
  at::Tensor shift, scale, gate;
};

/// The modulation vectors of a sequence [B, N, C]: video tokens come first, then text tokens.
struct JointModulation {
  Modulation video, text;
  /// int64 [B, N]: for each token, the row of `shift`, `scale` and `gate` that it uses. Undefined if R = B and each
  /// token uses the row of its batch entry.
  at::Tensor row_of_token{};
};

}  // namespace sparsereel::models
