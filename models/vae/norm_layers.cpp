// Computes scales, shifts and latent frames for norms.
#include "models/vae/norm_layers.h"

#include <ATen/ATen.h>

namespace sparsereel::models {

ChannelAffine to_channel_affine(const GroupNorm& norm, const at::Tensor& moments) {
  const int64_t per_group = norm.norm.weight.numel() / norm.groups;
  const at::Tensor &mean = moments[0], &variance = moments[1];
  const at::Tensor reciprocal = (variance + norm.eps).rsqrt().to(at::kFloat).repeat_interleave(per_group, -1);
  const at::Tensor scale = norm.norm.weight.to(at::kFloat) * reciprocal;
  return {.scale = scale,
          .shift = norm.norm.bias.to(at::kFloat) - mean.to(at::kFloat).repeat_interleave(per_group, -1) * scale};
}

int64_t latent_frame_of(int64_t t, int64_t frames, int64_t latent_frames) {
  if (frames == 1) return 0;
  if (frames % 2 == 0) return t * latent_frames / frames;
  return t == 0 ? 0 : 1 + (t - 1) * (latent_frames - 1) / (frames - 1);
}

}  // namespace sparsereel::models
