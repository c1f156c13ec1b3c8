// Group normalisation (Wu and He, arXiv 1803.08494) of activations [frames, height, width, channels].
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/norm.h"

namespace sparsereel::models {

struct GroupNorm {
  Norm norm{};  // [channels]
  int64_t groups = 1;
  double eps = 1e-5;
};

/// What a norm does to each channel: x * scale + shift, fp32 [channels] each.
struct ChannelAffine {
  at::Tensor scale, shift;
};

/// By the statistics of all frames of x.
ChannelAffine group_affine(const GroupNorm& norm, const at::Tensor& x);

/// out = silu(group_norm(x + input_bias)), each frame by its own statistics. out as x, with rows that may lie farther
/// apart; input_bias [channels], undefined: none.
void group_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out,
                     const at::Tensor& input_bias = {});

/// The same, all frames by their common statistics. out: contiguous.
void video_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out,
                     const at::Tensor& input_bias = {});

}  // namespace sparsereel::models
