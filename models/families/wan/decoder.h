// The decoder of diffusers' AutoencoderKLWan: its weights, and the decoding of a chunk of latent frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/wan/vae_config.h"
#include "models/families/wan/vae_layers.h"

namespace sparsereel::models {

struct WanUpBlock {
  std::vector<WanResidualBlock> blocks;
  std::optional<WanResampler> upsampler;  // in all but the last level; makes two frames of each
};

struct WanDecoder {
  Linear post_quant_conv;      // [z_dim, z_dim], before everything else
  CausalConv3d conv_in;        // z_dim -> widest
  WanMidBlock mid;             // widest
  std::vector<WanUpBlock> up;  // as decoder_levels() lists them
  at::Tensor norm_out;         // [narrowest]
  CausalConv3d conv_out;       // narrowest -> out_channels, perhaps padded with meaningless ones
  bool is_residual = false;    // upsamplers have a shortcut without weights
  int64_t out_channels = 3;

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// Call once, after all weights are loaded.
  void finish();
};

/// latents [F, H, W, z_dim], the next frames of a video, the first one alone -> [F', s H, s W, out_channels]. s does
/// not include patches. The chunks' size after the first frame does not change the result. `history` starts empty, on
/// zeros. If it has rows, latents are this rank's band.
at::Tensor decode_frames(const WanDecoder& decoder, const at::Tensor& latents, ConvHistory& history);

}  // namespace sparsereel::models
