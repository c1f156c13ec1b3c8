// Rotary embeddings (Su et al., arXiv 2104.09864) in which a channel of a head's first half forms a pair with the
// channel at the same position in the second half.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

/// Cosines and sines [L, 1, head_dim] that rotate channel i with channel i + head_dim / 2.
struct HalfRotation {
  at::Tensor cos, sin;
};

/// Returns fp32 [dim / 2], on the CPU: theta^(-2 i / dim).
at::Tensor rotary_frequencies(int64_t dim, double theta);

/// Returns the rotation by these angles, fp32 [L, head_dim / 2] on the CPU. `options` gives the tables' dtype and
/// device.
HalfRotation half_rotation(const at::Tensor& angles, const at::TensorOptions& options);

/// Rotates x [B, L, heads, head_dim].
at::Tensor rotated_halves(const at::Tensor& x, const HalfRotation& rotation);

}  // namespace sparsereel::models
