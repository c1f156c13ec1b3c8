// The decoder of diffusers' AutoencoderKLWan: its weights, and a chunk of latent frames through it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/wan/vae_config.h"
#include "models/families/wan/vae_layers.h"

namespace sparsereel::models {

struct WanUpBlock {
  std::vector<WanResidualBlock> blocks;
  std::optional<WanResampler> upsampler;  // in all but the last level; two frames of each
};

struct WanDecoder {
  Linear post_quant_conv;      // [z_dim, z_dim], before everything else
  CausalConv3d conv_in;        // z_dim -> widest
  WanMidBlock mid;             // widest
  std::vector<WanUpBlock> up;  // as decoder_levels() lists them
  at::Tensor norm_out;         // [narrowest]
  CausalConv3d conv_out;       // narrowest -> out_channels, or more that mean nothing
  bool is_residual = false;    // upsamplers have a shortcut without weights
  int64_t out_channels = 3;

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// To be called once, when all weights are there.
  void finish();
};

/// latents [F, H, W, z_dim], the next frames of a video, the first one by itself -> [F', s H, s W, out_channels], where
/// s is without the patches. How a video is cut into chunks behind its first frame changes nothing. `history` starts
/// empty, on zeros; where it has rows, latents are this rank's.
at::Tensor decode_frames(const WanDecoder& decoder, const at::Tensor& latents, ConvHistory& history);

}  // namespace sparsereel::models
