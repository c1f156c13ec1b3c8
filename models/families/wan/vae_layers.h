// What the encoder and the decoder of diffusers' AutoencoderKLWan are made of (Wan Team, arXiv 2503.20314). Activations
// are those of models/vae/causal_conv3d.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>

#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/vae/causal_conv3d.h"

namespace sparsereel::models {

struct WanResidualBlock {
  at::Tensor norm1;    // [in]
  CausalConv3d conv1;  // [out, in, 3, 3, 3]
  at::Tensor norm2;    // [out]
  CausalConv3d conv2;  // [out, out, 3, 3, 3]
  Linear shortcut;     // [out, in], undefined where in = out; finish() adds its bias to conv2's

  void weights(const Visit& visit, const std::string& name, int64_t in, int64_t out);
  /// To be called once, when all weights are there.
  void finish();
};

/// Single-headed self-attention over the pixels of each frame.
struct WanVaeAttention {
  at::Tensor norm;      // [channels]
  Linear to_qkv, proj;  // [3 channels, channels], [channels, channels]

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

/// At the latents' size.
struct WanMidBlock {
  std::array<WanResidualBlock, 2> blocks;
  WanVaeAttention attention;  // between them

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

/// Doubles or halves pictures, and time where there is a convolution for it.
struct WanResampler {
  std::optional<CausalConv3d> time_conv;  // [time_out, in, 3, 1, 1]
  at::Tensor weight;                      // [out, in, 3, 3], channels-last
  at::Tensor bias;                        // [out]

  void weights(const Visit& visit, const std::string& name, int64_t in, int64_t out, std::optional<int64_t> time_out);
};

/// conv(silu(norm(x))); x is let go as soon as it is normalised, which frees it unless the caller holds it. input_bias:
/// that x still lacks; with_bias off: what comes out lacks conv's.
at::Tensor convolve_normed(const at::Tensor& gamma, const CausalConv3d& conv, at::Tensor x, ConvHistory& history,
                           const at::Tensor& input_bias = {}, bool with_bias = true);

at::Tensor residual_block(const WanResidualBlock& block, const at::Tensor& x, ConvHistory& history);

at::Tensor mid_block(const WanMidBlock& block, at::Tensor x, ConvHistory& history);

}  // namespace sparsereel::models
