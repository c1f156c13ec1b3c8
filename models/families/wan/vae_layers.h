// The layers that both the encoder and the decoder of diffusers' AutoencoderKLWan use (Wan Team, arXiv 2503.20314).
// Activations are laid out as in models/vae/causal_conv3d.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/vae/resnet.h"

namespace sparsereel::models {

using WanResidualBlock = ResnetBlock<at::Tensor>;  // a norm is represented by its weight (gamma), [channels]

/// Lists the weights of `count` blocks as list_resnets() does.
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
  std::vector<WanResidualBlock> blocks;  // two blocks
  WanVaeAttention attention;             // between the two blocks

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

/// Doubles or halves the height and width of pictures, and the number of frames too if time_conv is set.
struct WanResampler {
  std::optional<CausalConv3d> time_conv;  // [time_out, in, 3, 1, 1]
  at::Tensor weight;                      // [out, in, 3, 3], channels-last
  at::Tensor bias;                        // [out]

  void weights(const Visit& visit, const std::string& name, int64_t in, int64_t out, std::optional<int64_t> time_out);
};

/// Returns conv(silu(norm(x))). x is freed as soon as it is normalized, unless the caller holds another reference.
at::Tensor convolve_normed(const at::Tensor& gamma, const CausalConv3d& conv, at::Tensor x, ConvHistory& history);

at::Tensor residual_block(const WanResidualBlock& block, const at::Tensor& x, ConvHistory& history);

at::Tensor mid_block(const WanMidBlock& block, at::Tensor x, ConvHistory& history);

}  // namespace sparsereel::models
