// The vectors of normalisation and of adaptive modulation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/layers/parameters.h"

namespace sparsereel::models {

/// A layer norm's weight and bias [channels], or both undefined: none.
struct Norm {
  at::Tensor weight, bias;

  /// Stored as `name`.weight and `name`.bias. fp32: whatever the run's dtype is.
  void weights(const Visit& visit, const std::string& name, int64_t channels, bool fp32 = false);
};

/// A sequence [B, N, C] holds video tokens first, then text tokens; the parts have their own modulation vectors.
struct Modulation {
  at::Tensor shift, scale, gate;  // [R, C] each
};

struct JointModulation {
  Modulation video, text;
  /// int64 [B, N]: which of the R rows is each token's; undefined: those of a batch entry share its own, R = B.
  at::Tensor row_of_token{};
};

}  // namespace sparsereel::models
