// Group normalisation (Wu and He, arXiv 1803.08494) of activations [frames, height, width, channels].
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/layers/parameters.h"
#include "models/vae/norm_layers.h"

namespace sparsereel::models {

class RowSplit;

/// Lists norms of so many groups, for ResnetBlock::weights(). suffix: what stands behind a norm's name.
inline auto list_group_norms(const Visit& visit, int64_t groups, double eps, const std::string& suffix = {}) {
  return [&visit, groups, eps, suffix](GroupNorm& norm, const std::string& name, int64_t channels) {
    norm.groups = groups;
    norm.eps = eps;
    norm.norm.weights(visit, name + suffix, channels);
  };
}

// rows, below: of whose pictures x's frames are pieces, which the statistics are of; null: of none.

/// By the statistics of all frames of x.
ChannelAffine group_affine(const GroupNorm& norm, const at::Tensor& x, const RowSplit* rows = nullptr);

/// out = silu(group_norm(x + input_bias)), each frame by its own statistics. out as x, with rows that may lie farther
/// apart; input_bias [channels], undefined: none.
void group_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out,
                     const at::Tensor& input_bias = {}, const RowSplit* rows = nullptr);

/// The same, all frames by their common statistics. out: contiguous, but where there are rows.
void video_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out,
                     const at::Tensor& input_bias = {}, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
