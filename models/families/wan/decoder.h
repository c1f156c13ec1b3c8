// The decoder of diffusers' AutoencoderKLWan (Wan Team, arXiv 2503.20314): its weights, and a chunk of latent frames
// through it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "models/families/wan/vae_config.h"
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
};

/// Single-headed self-attention over the pixels of each frame.
struct WanVaeAttention {
  at::Tensor norm;      // [channels]
  Linear to_qkv, proj;  // [3 channels, channels], [channels, channels]

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

struct WanUpsampler {
  std::optional<CausalConv3d> time_conv;  // [2 channels, channels, 3, 1, 1]: two frames of each
  at::Tensor weight;                      // [enlarged, channels, 3, 3], channels-last
  at::Tensor bias;                        // [enlarged]

  void weights(const Visit& visit, const std::string& name, const WanVaeLevel& level);
};

struct WanUpBlock {
  std::vector<WanResidualBlock> blocks;
  std::optional<WanUpsampler> upsampler;  // in all but the last level
};

struct WanDecoder {
  Linear post_quant_conv;               // [z_dim, z_dim], before everything else
  CausalConv3d conv_in;                 // z_dim -> widest
  std::array<WanResidualBlock, 2> mid;  // widest
  WanVaeAttention attention;            // between them
  std::vector<WanUpBlock> up;           // as levels_of() lists them
  at::Tensor norm_out;                  // [narrowest]
  CausalConv3d conv_out;                // narrowest -> out_channels, or more that mean nothing
  bool is_residual = false;             // upsamplers have a shortcut without weights
  int64_t out_channels = 3;

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// To be called once, when all weights are there.
  void finish();
};

/// latents [F, H, W, z_dim], the next frames of a video, the first one by itself -> [F', s H, s W, out_channels], where
/// s is without the patches. How a video is cut into chunks behind its first frame changes nothing. `history` starts
/// empty, on zeros.
at::Tensor decode_frames(const WanDecoder& decoder, const at::Tensor& latents, ConvHistory& history);

}  // namespace sparsereel::models
