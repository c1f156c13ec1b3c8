// The layers of encoder and decoder in diffusers' AutoencoderKLWan (Wan Team, arXiv 2503.20314). Activations are as in
// models/vae/causal_conv3d.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/vae/resnet.h"

namespace sparsereel::models {

using WanResidualBlock = ResnetBlock<at::Tensor>;  // its norms are gammas [channels]

/// Lists blocks as list_resnets() does, or a single one.
void list_residual_blocks(std::vector<WanResidualBlock>& blocks, const Visit& visit, const std::string& name,
                          int64_t count, int64_t in, int64_t out);
void list_residual_block(WanResidualBlock& block, const Visit& visit, const std::string& name, int64_t in, int64_t out);

/// Single-headed self-attention over the pixels of each frame.
struct WanVaeAttention {
  at::Tensor norm;      // [channels]
  Linear to_qkv, proj;  // [3 channels, channels], [channels, channels]

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

/// The middle block, at the latents' size.
struct WanMidBlock {
  std::vector<WanResidualBlock> blocks;  // two
  WanVaeAttention attention;             // between them

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

/// Doubles or halves pictures, and also time if time_conv is set.
struct WanResampler {
  std::optional<CausalConv3d> time_conv;  // [time_out, in, 3, 1, 1]
  at::Tensor weight;                      // [out, in, 3, 3], channels-last
  at::Tensor bias;                        // [out]

  void weights(const Visit& visit, const std::string& name, int64_t in, int64_t out, std::optional<int64_t> time_out);
};

/// Returns conv(silu(norm(x))). x is released once it is normalized, which frees it unless the caller holds it.
at::Tensor convolve_normed(const at::Tensor& gamma, const CausalConv3d& conv, at::Tensor x, ConvHistory& history);

at::Tensor residual_block(const WanResidualBlock& block, const at::Tensor& x, ConvHistory& history);

at::Tensor mid_block(const WanMidBlock& block, at::Tensor x, ConvHistory& history);

}  // namespace sparsereel::models
