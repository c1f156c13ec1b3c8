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

/// The effect of a norm on each channel: x * scale + shift, fp32 [channels] each.
struct ChannelAffine {
  at::Tensor scale, shift;
};

/// Converts `moments`, the mean and variance of each group (fp64, [2, .., groups]), to a scale and a shift for each
/// channel (fp32, [.., channels]).
ChannelAffine to_channel_affine(const GroupNorm& norm, const at::Tensor& moments);

struct SpatialNorm {
  Norm norm;      // [channels]
  Linear conv_y;  // computes the scale from the latents: [channels, latent channels]
  Linear conv_b;  // computes the shift from the latents: [channels, latent channels]
  int64_t groups = 1;
};

/// Returns the latent frame from which frame t of `frames` is decoded. If `frames` is odd, the first frame was not
/// repeated in time.
int64_t latent_frame_of(int64_t t, int64_t frames, int64_t latent_frames);

}  // namespace sparsereel::models
