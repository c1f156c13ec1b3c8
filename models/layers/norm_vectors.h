// The vectors of norms and of adaptive modulation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/layers/parameters.h"

namespace sparsereel::models {

/// A norm's weight and bias [channels]; each is undefined if the norm has none.
struct Norm {
  at::Tensor weight, bias;
  bool rms = false;  // divides by the root mean square and subtracts no mean (Zhang and Sennrich, arXiv 1910.07467)

  /// Lists `name`.weight and, unless it is an RMS norm, `name`.bias. With fp32, they stay fp32 in every run.
  void weights(const Visit& visit, const std::string& name, int64_t channels, bool fp32 = false);
};

/// The modulation vectors of one part of a sequence [B, N, C]: video tokens come first, then text tokens.
struct Modulation {
  at::Tensor shift, scale, gate;  // [R, C] each
};

struct JointModulation {
  Modulation video, text;
  /// int64 [B, N]: for each token, the row of `shift`, `scale` and `gate` that it uses. Undefined if R = B and each
  /// token uses the row of its batch entry.
  at::Tensor row_of_token{};
};

}  // namespace sparsereel::models
