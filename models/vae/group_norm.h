// Group norm (Wu and He, arXiv 1803.08494) of activations [frames, height, width, channels].
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/layers/parameters.h"
#include "models/vae/norm_layers.h"

namespace sparsereel::models {

class RowSplit;

/// Returns the argument list_norm for ResnetBlock::weights(). It lists norms of `groups` groups; `suffix` is appended
/// to a norm's name.
inline auto list_group_norms(const Visit& visit, int64_t groups, double eps, const std::string& suffix = {}) {
  return [&visit, groups, eps, suffix](GroupNorm& norm, const std::string& name, int64_t channels) {
    norm.groups = groups;
    norm.eps = eps;
    norm.norm.weights(visit, name + suffix, channels);
  };
}

// Below, if `rows` is not null, x is this rank's band of the frames' rows, and statistics are over the whole frames.

/// Returns the norm of x as a scale and a shift. All frames share their statistics.
ChannelAffine group_affine(const GroupNorm& norm, const at::Tensor& x, const RowSplit* rows = nullptr);

/// Computes out = silu(group_norm(x + input_bias)), with statistics for each frame. out has x's shape; its rows may lie
/// farther apart. input_bias is [channels] or undefined.
void group_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out,
                     const at::Tensor& input_bias = {}, const RowSplit* rows = nullptr);

/// Does the same, but all frames share their statistics. out must be contiguous unless `rows` is given.
void video_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out,
                     const at::Tensor& input_bias = {}, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
