// The parameters of norms of a VAE's activations [frames, height, width, channels].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layers/linear_layer.h"
#include "models/layers/norm_vectors.h"

namespace sparsereel::models {

struct GroupNorm {
  Norm norm{};  // [channels]
  int64_t groups = 1;
  double eps = 1e-5;
};

/// A norm as a scale and a shift for each channel, fp32 [channels]: norm(x) = x * scale + shift.
struct ChannelAffine {
  at::Tensor scale, shift;
};

/// Converts `moments`, the mean and variance of each group (fp64, [2, .., groups]), to a scale and a shift for each
/// channel (fp32, [.., channels]).
ChannelAffine to_channel_affine(const GroupNorm& norm, const at::Tensor& moments);

struct SpatialNorm {
  Norm norm;      // [channels]
  Linear conv_y;  // [channels, latent channels]: computes the scale from the latents
  Linear conv_b;  // [channels, latent channels]: computes the shift from the latents
  int64_t groups = 1;
};

/// Returns the latent frame that belongs to frame t of `frames`. Decoders repeat frames in time. If `frames` is odd,
/// the first frame was not repeated.
int64_t latent_frame_of(int64_t t, int64_t frames, int64_t latent_frames);

}  // namespace sparsereel::models
