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

/// Mean and variance of groups, fp64 [2, .., groups] -> scale and shift, fp32 [.., channels].
ChannelAffine to_channel_affine(const GroupNorm& norm, const at::Tensor& moments);

struct SpatialNorm {
  Norm norm;      // [channels]
  Linear conv_y;  // the scale: [channels, latent channels]
  Linear conv_b;  // the shift: [channels, latent channels]
  int64_t groups = 1;
};

/// Returns the latent frame that frame t of `frames` belongs to. An odd number of frames begins with one that was not
/// repeated in time.
int64_t latent_frame_of(int64_t t, int64_t frames, int64_t latent_frames);

}  // namespace sparsereel::models
